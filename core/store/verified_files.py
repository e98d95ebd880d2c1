"""The files that a process has verified, so that it reads each only once."""

import threading
from collections import OrderedDict
from pathlib import Path

Identity = tuple[int, int, int]
"""Inode, bytes and time of change: another one means that the file must be verified again."""


class VerifiedFiles:
    """Of very many files the last `limit`: a worker that runs for months meets a few more with every job.

    Safe for threads.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._files: OrderedDict[str, Identity] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, path: Path, identity: Identity) -> bool:
        """Whether it was verified as what it is now."""
        with self._lock:
            return self._files.get(str(path)) == identity

    def add(self, path: Path, identity: Identity) -> None:
        """Remember it in place of the one that was added longest ago."""
        with self._lock:
            self._files[str(path)] = identity
            self._files.move_to_end(str(path))
            if len(self._files) > self._limit:
                self._files.popitem(last=False)

    def drop(self, path: Path) -> None:
        """Forget it; one that is not there is fine."""
        with self._lock:
            self._files.pop(str(path), None)
