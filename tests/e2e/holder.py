"""Hold a process of a service at a named point of its code."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import psutil

from tests.e2e.small import wait_until


class Holder:
    """Holds the next process that reaches a point of `core/failpoints.py`.

    SIGSTOP at the point could stop another thread of the process in the middle of a write, which
    locks SQLite for everyone. So the thread waits there alone: the point's file is a pipe, which it
    reads until `release` writes.

    Args:
        points: the folder in which the service looks for armed points.
        roots: process ids of the service's first processes.
    """

    def __init__(self, points: Path, *roots: int) -> None:
        self._points, self._roots = points, [psutil.Process(pid) for pid in roots]
        self._armed: Path | None = None
        self._writer: int | None = None

    def arm(self, point: str) -> None:
        """Hold the next process that reaches a point."""
        self._armed = self._points / point
        os.mkfifo(self._armed)

    def wait(self) -> psutil.Process:
        """Wait until a process is held, and return it."""
        assert self._armed is not None
        self._writer = wait_until(self._open_where_read)
        held = wait_until(self._find_reader)
        self._armed.unlink()
        self._armed = None
        return held

    def release(self) -> None:
        """Let the held process go on, if there is one."""
        if self._armed is not None:
            self._armed.unlink()
            self._armed = None
        if self._writer is not None:
            with suppress(BrokenPipeError):  # it was killed
                os.write(self._writer, b"0")
            os.close(self._writer)
            self._writer = None

    def _open_where_read(self) -> int | None:
        assert self._armed is not None
        try:
            return os.open(self._armed, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return None

    def _find_reader(self) -> psutil.Process | None:
        """Find the process that has the pipe open."""
        for process in (child for root in self._roots for child in root.children(recursive=True)):
            try:
                opened = [str(fd.readlink()) for fd in Path(f"/proc/{process.pid}/fd").iterdir()]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(self._armed) in opened:
                return process
        return None
