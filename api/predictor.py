"""The API's side of the predict helper: one process, started at first use, one request at a time.

Requests wait in line; the helper gets a limited time for each and is ended when it exceeds it. When it dies
the request at hand is answered 503 and the next one starts a new helper.
"""

import asyncio
import json
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from core import helper_process
from core.errors import ImageInvalid, Invalid, PerennialError, StoreCorrupt, Unavailable
from core.ingest.limits import Limits
from core.messages import read_message, write_message
from core.settings import Settings

log = structlog.get_logger(__name__)

WAITING = 32
"""Requests in line at most, and their bytes at most; beyond, 503 asks to come back."""
WAITING_BYTES = 256 << 20
START_S = 120.0
ANSWER_S = 60.0
_ROOT = Path(__file__).parents[1]
_ERRORS: dict[str, type[PerennialError]] = {"image": ImageInvalid, "gone": StoreCorrupt}
"""What the helper calls a refusal, where it is not the request's form."""


class Predictor:
    """Client of one helper process. Safe for threads and event loops.

    Args:
        settings: threads and limits of the helper.
        command: starts the helper; replaced in tests.
        answer_s: seconds that one answer may take.
    """

    def __init__(
        self, settings: Settings, *, command: Sequence[str] | None = None, answer_s: float = ANSWER_S
    ) -> None:
        self._command = list(command or _helper_command(settings))
        self._answer_s = answer_s
        self._process: subprocess.Popen[bytes] | None = None
        self._line = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self._lock = threading.Lock()
        self._waiting = 0
        self._waiting_bytes = 0
        self._closed = False

    @contextmanager
    def place(self, size: int) -> Iterator[None]:
        """A place in line for a request of at most `size` bytes, to be taken before its body is read.

        Raises:
            Unavailable: the line is full.
        """
        with self._lock:
            if self._waiting >= WAITING or self._waiting_bytes + size > WAITING_BYTES:
                raise Unavailable("Too many predictions are waiting; try again shortly.", retry_after_s=1)
            self._waiting += 1
            self._waiting_bytes += size
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1
                self._waiting_bytes -= size

    async def predict(self, header: Mapping[str, Any], body: Sequence[bytes]) -> bytes:
        """The helper's answer, as JSON.

        Args:
            header: what `core.work.predictor.answer` describes, less the sizes.

        Raises:
            ImageInvalid, Invalid: the helper refused the request.
            StoreCorrupt: a file of the version is gone.
            Unavailable: the helper died or took too long.
        """
        return await asyncio.wrap_future(self._line.submit(self._ask, header, body))

    def close(self) -> None:
        """End the helper; no further requests."""
        self._closed = True
        self._end()
        self._line.shutdown(wait=False, cancel_futures=True)

    @property
    def pid(self) -> int | None:
        """Process id of the helper, or None when none runs."""
        return None if self._process is None else self._process.pid

    def _ask(self, header: Mapping[str, Any], body: Sequence[bytes]) -> bytes:
        header = {**header, "sizes": [len(data) for data in body]}
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        watchdog, expired = self._watch(process, self._answer_s)
        try:
            write_message(process.stdin, json.dumps(header).encode())
            for data in body:
                process.stdin.write(data)
            process.stdin.flush()
            status = json.loads(read_message(process.stdout))
            result = read_message(process.stdout) if status.get("ok") else b""
        except (EOFError, OSError, ValueError, struct.error):
            self._end()
            log.error("predict helper gone", exit=process.returncode, timeout=expired.is_set())
            if expired.is_set():
                raise Unavailable(
                    f"Predicting took longer than {self._answer_s:.0f} s; send fewer images."
                ) from None
            raise Unavailable("The predict helper stopped while it answered; try again.") from None
        finally:
            watchdog.cancel()
        if status.get("ok"):
            return result
        raise _ERRORS.get(str(status.get("kind")), Invalid)(status["detail"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise Unavailable("The service is shutting down.")
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        process = subprocess.Popen(self._command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._process = process
        assert process.stdout is not None
        watchdog, _ = self._watch(process, START_S)
        try:
            read_message(process.stdout)
        except (EOFError, OSError, struct.error):
            self._end()
            raise Unavailable("The predict helper could not be started; try again.") from None
        finally:
            watchdog.cancel()
        return process

    def _watch(
        self, process: "subprocess.Popen[bytes]", seconds: float
    ) -> tuple[threading.Timer, threading.Event]:
        expired = threading.Event()

        def end() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        return timer, expired

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            helper_process.end(process)


def _helper_command(settings: Settings) -> list[str]:
    limits = json.dumps(asdict(Limits.of(settings)))
    return [sys.executable, "-m", "core.work.predictor", str(settings.threads), limits]
