"""The worker's scratch folder, and the removal of those that dead workers left.

Each worker locks a file for its lifetime; the kernel lets go of the lock however the process ends, so a
folder whose lock can be had belongs to nobody. Several workers may share one data directory.
"""

import fcntl
import os
import shutil
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_LOCK = ".lock"


class WorkFolder:
    """`<root>/<worker>/`, locked while this process lives.

    Args:
        root: the `work` folder of the data directory.
        worker: this worker's name.
    """

    def __init__(self, root: Path, worker: str) -> None:
        self._root = root
        self.path = root / worker
        self._lock: int | None = None

    def open(self) -> None:
        """Make and lock the folder, and remove abandoned ones."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.path)
        for other in self._root.iterdir():
            if other == self.path or not other.is_dir():
                continue
            lock = _locked(other)
            if lock is not None:
                log.info("removing an abandoned work folder", folder=other.name)
                shutil.rmtree(other, ignore_errors=True)
                os.close(lock)

    def close(self) -> None:
        """Remove the folder and let go of the lock."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock, or None when another process does."""
    try:
        fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
