"""Scratch folders of processes, removed by their owner or after its death by another process.

The kernel releases a lock however a process ends, so a folder whose lock is free has no owner.
Several processes may share one data directory.
"""

import fcntl
import os
import secrets
import shutil
from pathlib import Path

from core import spool

_LOCK = ".lock"


class ScratchFolder:
    """A folder of this process in `root`, with a lock file beside it."""

    def __init__(self, root: Path) -> None:
        self._path = root / secrets.token_hex(8)
        self._lock = self._path.with_suffix(_LOCK)
        self._fd: int | None = None

    def open(self) -> Path:
        """Make the folder, remove those of dead processes, and return its path."""
        remove_abandoned(self._path.parent)
        self._fd = spool.create_locked(self._lock)
        self._path.mkdir(mode=0o700)
        return self._path

    def close(self) -> None:
        """Remove the folder, if it exists."""
        if self._fd is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._lock.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None


def remove_abandoned(root: Path) -> None:
    """Remove the folders in `root` that no living process has locked."""
    for lock in root.glob(f"*{_LOCK}"):
        try:
            fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process has removed it
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
        except BlockingIOError:
            continue  # its owner is alive
        finally:
            os.close(fd)
