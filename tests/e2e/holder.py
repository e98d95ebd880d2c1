"""Stop a process of a service at a named point of its code."""

import signal
from pathlib import Path

import psutil

from tests.e2e.small import until


class Holder:
    """Stops the next process that reaches a point of `core/failpoints.py`.

    Args:
        points: the folder in which the service looks for armed points.
        roots: process ids of the service's first processes.
    """

    def __init__(self, points: Path, *roots: int) -> None:
        self._points, self._roots = points, [psutil.Process(pid) for pid in roots]

    def arm(self, point: str) -> None:
        """Stop the next process that reaches a point."""
        (self._points / point).write_text(str(int(signal.SIGSTOP)))

    def wait(self) -> psutil.Process:
        """Wait until a process has stopped, and return it."""
        return until(self._find_stopped)[0]

    def release(self) -> None:
        """Resume every stopped process."""
        for process in self._find_stopped():
            process.resume()

    def _find_stopped(self) -> list[psutil.Process]:
        found = []
        for process in (child for root in self._roots for child in root.children(recursive=True)):
            try:
                if process.status() == psutil.STATUS_STOPPED:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found
