"""Holds a process of an embedded service at a named point, for what must happen while it is there."""

import signal
import time
from pathlib import Path

import psutil

LIMIT_S = 60.0


class Holder:
    """Stops the next process that comes to a point of `core/failpoints.py`.

    Args:
        launcher: process id of the service's launcher.
        points: the folder in which the service looks for armed points.
    """

    def __init__(self, launcher: int, points: Path) -> None:
        self._launcher, self._points = psutil.Process(launcher), points

    def arm(self, point: str) -> None:
        """Let the next process that comes to a point stop there."""
        (self._points / point).write_text(str(int(signal.SIGSTOP)))

    def wait(self) -> psutil.Process:
        """Return the process that has stopped."""
        deadline = time.monotonic() + LIMIT_S
        while not (stopped := self._stopped()):
            assert time.monotonic() < deadline, "no process came to the point"
            time.sleep(0.02)
        return stopped[0]

    def release(self) -> None:
        """Let every stopped process go on."""
        for process in self._stopped():
            process.resume()

    def _stopped(self) -> list[psutil.Process]:
        found = []
        for process in self._launcher.children(recursive=True):
            try:
                if process.status() == psutil.STATUS_STOPPED:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found
