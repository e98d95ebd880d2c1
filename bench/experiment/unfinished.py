"""A run that has not ended, on disk: the stages that are done, and the last snapshot of the one at
hand.

A run that was killed goes on from there and ends as it would have; what it took is counted up to
that snapshot.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.contract.jobs.control_request import JobControlRequest
from core.learning.training.control import ControlRequestSource

SNAPSHOT_S = 60.0
"""Between two snapshots."""


class FinishedStageRecords:
    """Records of the finished tasks of a run, stored in the run's folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "stages.json"
        self.done: list[dict[str, Any]] = []
        if self._file.exists():
            self.done = json.loads(self._file.read_text())

    def add_finished_stage(self, facts: dict[str, Any]) -> None:
        """Record a finished task of the run, whose result is on disk already."""
        self.done.append(facts)
        write_json_atomically(self._file, self.done)


def choose_clock_for_device(device: str) -> Callable[[], float]:
    """Return a clock in seconds: CPU time for jobs on the CPU, else wall time."""
    return time.process_time if device == "cpu" else time.perf_counter


class ResumableJobState:
    """One learning job of a run, with its last snapshot and its total time over all attempts.

    clock: that counts them, see `choose_clock_for_device`.
    """

    def __init__(self, out: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        self._file = out / "unfinished.json"
        self.snapshot: str | None = None
        self._before = 0.0
        if self._file.exists():
            saved_state = json.loads(self._file.read_text())
            self.snapshot, self._before = saved_state["snapshot"], saved_state["seconds"]
        self._clock = clock
        self._begun = clock()

    @property
    def elapsed_seconds(self) -> float:
        """Seconds that the job has taken so far, over all its attempts."""
        return self._before + self._clock() - self._begun

    def replace_snapshot_on_event(self, event: dict[str, Any]) -> None:
        """Handle an event of the stage's job process: on a snapshot, write its path to the run's
        file on disk and delete the snapshot before.
        """
        if event["event"] != "snapshot":
            return
        before, self.snapshot = self.snapshot, event["path"]
        write_json_atomically(
            self._file, {"snapshot": self.snapshot, "seconds": self.elapsed_seconds}
        )
        if before is not None:
            shutil.rmtree(before)


class PeriodicSnapshotControl:
    """Training control that requests a snapshot periodically, besides another control's requests."""

    def __init__(self, other: ControlRequestSource) -> None:
        self._other = other
        self._last = time.monotonic()

    @property
    def has_pending_request(self) -> bool:
        """True if a request is waiting or a snapshot is due."""
        return self._other.has_pending_request or time.monotonic() - self._last > SNAPSHOT_S

    def take_control_request(self) -> JobControlRequest | None:
        """Return the other control's request; else request a snapshot if one is due."""
        request = self._other.take_control_request()
        if request is None:
            self._last = time.monotonic()
            return JobControlRequest.SNAPSHOT
        return request


def write_json_atomically(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(content, allow_nan=False, sort_keys=True, ensure_ascii=False) + "\n")
    new.rename(path)
