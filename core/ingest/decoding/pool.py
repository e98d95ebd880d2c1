"""Pool of decoder processes, which get ranges of images and may die.

A decoder that dies or hangs reveals its current image. That image is tried once more alone, since
the death may have been an accident, and then counts as unusable. The other images of its range are
repeated.
"""

import os
import selectors
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from core.ingest.decoding.decoder import BAD, CELL_BYTES, REASON_BYTES, DecodingPlan
from core.ingest.limits import BAD_SHARE
from core.machine import count_usable_cpus
from core.processes import helper_process

IMAGE_S = 30.0
"""Seconds after which a decoder that stays at one image is killed."""
START_S = 120.0
MAX_FAILED_STARTS = 2
DEADLY = "the decoder crashed, or took too long or too much memory"
MAX_CRASHES = 50
"""Most images that may kill the decoder before the ingest ends: each costs two processes."""
BATCH_CPU_S, IMAGE_CPU_S = 300.0, 4.0
"""CPU seconds for decoding a batch: a constant, and a further part for each image.

Sixteen million pixels take half a second. Without a limit on the sum, images of just under
`IMAGE_S` each would occupy a worker for months.
"""
_TICK_S = 0.2
Range = tuple[int, int]


class IngestStopped(Exception):
    """Error: the caller asked to stop decoding a batch; nothing of the batch is stored."""


class TooManyCrashingImages(Exception):
    """Error: so many images crashed the decoder that the batch is unusable."""


class DecodingTooSlow(Exception):
    """Error: decoding the batch takes more CPU time than its number of images justifies."""


def choose_decoder_process_count() -> int:
    """Return the default number of decoder processes: one less than the cores, at least one."""
    return max(1, count_usable_cpus() - 1)


@dataclass
class _DecoderProcess:
    process: "subprocess.Popen[bytes]"
    cell: Path
    since: float
    assigned: deque[Range] = field(default_factory=deque)
    plan: DecodingPlan | None = None
    last_row: int = 0
    spent_s: float = 0.0
    ready: bool = False
    buffer: bytes = b""


@dataclass
class DecoderPool:
    """Pool of up to `processes` image decoder processes.

    Attributes:
        folder: folder for scratch files.
        processes: most decoders at once.
        image_s: seconds that one image may take.
        crashed: rows that killed a decoder twice.
    """

    folder: Path
    processes: int
    image_s: float = IMAGE_S
    crashed: list[int] = field(default_factory=list)
    _suspects: set[int] = field(default_factory=set)
    _todo: deque[Range] = field(default_factory=deque)
    _workers: list[_DecoderProcess] = field(default_factory=list)
    _started: int = 0
    _failed_starts: int = 0
    _spent_s: float = 0.0
    """CPU seconds of decoders that have ended."""

    def start_decoder(self) -> None:
        """Start one decoder process, which prepares while the caller does other work."""
        cell = self.folder / f"cell-{self._started}"
        self._started += 1
        # Before the start, because the decoder maps the file.
        cell.write_bytes(bytes(CELL_BYTES))
        # A file, because a pipe that nobody reads would block a decoder that prints much.
        with (self.folder / "decoder-errors").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "core.ingest.decoding.decoder"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=helper_process.ROOT,
                # Decoders share the cores already, so their libraries get one thread each.
                env=helper_process.build_helper_environment(
                    OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"
                ),
                # A terminal's Ctrl-C is for the service, which ends its decoders itself.
                process_group=0,
            )
        self._workers.append(_DecoderProcess(process, cell, time.monotonic()))
        self._send_line_to_decoder(self._workers[-1], f"{cell.absolute()}\n")

    def decode_ranges(
        self,
        plan: DecodingPlan,
        ranges: list[Range],
        progress: Callable[[int, int], None],
        stop: Callable[[], bool],
    ) -> None:
        """Decode all row ranges of a plan in the pool. Call this once per plan.

        Raises IngestStopped, TooManyCrashingImages, DecodingTooSlow; RuntimeError: none can start.
        """
        self._todo.extend(ranges)
        done, total = 0, sum(b - a for a, b in ranges)
        most_workers = min(self.processes, len(ranges))
        while self._todo or any(w.assigned for w in self._workers):
            if stop():
                raise IngestStopped
            # Near the end, a decoder that died is replaced only if ranges are waiting.
            while len(self._workers) < min(most_workers, max(1, len(self._todo))):
                self.start_decoder()
            for worker in self._workers:
                # One range in work and one waiting: a decoder never waits for this process to wake
                # up.
                while worker.ready and len(worker.assigned) < 2 and self._todo:
                    self._assign_row_range(worker, plan, self._todo.popleft())
            for worker in self._wait_for_decoder_output():
                finished = self._read_decoder_output(worker, plan)
                done += finished
                if finished:
                    progress(done, total)
            self._kill_stuck_decoders()
            if (
                self._spent_s + sum(w.spent_s for w in self._workers)
                > BATCH_CPU_S + IMAGE_CPU_S * plan.rows
            ):
                raise DecodingTooSlow

    def kill_decoders(self) -> None:
        """Kill all decoder processes."""
        for worker in self._workers:
            helper_process.kill_helper_process(worker.process)
        self._workers.clear()

    def _assign_row_range(self, worker: _DecoderProcess, plan: DecodingPlan, part: Range) -> None:
        # By identity, since decoders are used again for the next array's plan.
        if worker.plan is not plan:
            worker.plan = plan
            self._send_line_to_decoder(worker, plan.to_json() + "\n")
        if not worker.assigned:
            worker.since, worker.last_row = time.monotonic(), 0
        worker.assigned.append(part)
        self._send_line_to_decoder(worker, f"{part[0]} {part[1]}\n")

    def _send_line_to_decoder(self, worker: _DecoderProcess, text: str) -> None:
        assert worker.process.stdin is not None
        try:
            worker.process.stdin.write(text.encode())
            worker.process.stdin.flush()
        except BrokenPipeError:
            return  # its death is noticed when its output closes

    def _wait_for_decoder_output(self) -> list[_DecoderProcess]:
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                assert worker.process.stdout is not None
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            # With a time-out, so that the caller's `stop` and stuck decoders are noticed.
            return [key.data for key, _ in selector.select(_TICK_S)]

    def _read_decoder_output(self, worker: _DecoderProcess, plan: DecodingPlan) -> int:
        """Read a decoder's output; return the number of images that it has finished."""
        assert worker.process.stdout is not None
        # os.read returns what is there, where a buffered read would wait for more.
        data = os.read(worker.process.stdout.fileno(), 4096)
        if not data:
            return self._handle_decoder_death(worker, plan)
        worker.buffer += data
        finished = 0
        while b"\n" in worker.buffer:
            message, _, worker.buffer = worker.buffer.partition(b"\n")
            if message == b"ready":
                worker.ready = True
            else:
                start, stop = worker.assigned.popleft()
                finished += stop - start
        return finished

    def _kill_stuck_decoders(self) -> None:
        """Kill decoder processes that take too long for one image or for starting."""
        now = time.monotonic()
        for worker in self._workers:
            at, worker.spent_s = struct.unpack("<Qd", worker.cell.read_bytes())
            # A decoder without work is not stuck.
            if at != worker.last_row or (worker.ready and not worker.assigned):
                worker.last_row, worker.since = at, now
            elif now - worker.since > (self.image_s if worker.ready else START_S):
                # Handled like any other death, when its output closes.
                worker.process.kill()

    def _handle_decoder_death(self, worker: _DecoderProcess, plan: DecodingPlan) -> int:
        """After a decoder process died: reject its current image, and requeue its other rows.

        Returns:
            Number of images that are given up, 0 or 1.
        """
        helper_process.kill_helper_process(worker.process)
        self._workers.remove(worker)
        self._spent_s += worker.spent_s
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts <= MAX_FAILED_STARTS:
                return 0
            tail = (self.folder / "decoder-errors").read_bytes()[-2000:].decode("utf-8", "replace")
            raise RuntimeError(f"a decoder process could not start: {tail}")
        if not worker.assigned:
            return 0
        start, stop = worker.assigned.popleft()
        row = int.from_bytes(worker.cell.read_bytes()[:8], "little") - 1
        if not start <= row < stop:  # it died between images
            row = start
        parts = [(start, row), (row + 1, stop), *worker.assigned]
        given_up = row in self._suspects
        if given_up:
            self._reject_crashing_image(row, plan)
        else:
            self._suspects.add(row)
            parts.insert(1, (row, row + 1))
        # Reversed, since `extendleft` puts the parts in front one by one.
        self._todo.extendleft(part for part in reversed(parts) if part[0] < part[1])
        return int(given_up)

    def _reject_crashing_image(self, row: int, plan: DecodingPlan) -> None:
        self.crashed.append(row)
        # With a larger share, the batch would be rejected in any case.
        if len(self.crashed) > max(1, min(MAX_CRASHES, int(BAD_SHARE * plan.rows))):
            raise TooManyCrashingImages
        # The reason precedes the verdict: a row with a verdict is complete.
        with Path(plan.reasons).open("r+b") as file:
            file.seek(row * REASON_BYTES)
            file.write(DEADLY.encode())
        with Path(plan.verdicts).open("r+b") as file:
            file.seek(row)
            file.write(bytes([BAD]))
