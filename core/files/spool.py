"""Files of uploads and scratch folders, locked while their process lives, removed after its death.

The kernel releases a lock however a process ends, so a file or folder whose lock is free has no
owner. Several processes may share one data directory.
"""

import fcntl
import os
import secrets
import shutil
import time
from pathlib import Path

PREFIX = "upload-"
OTHER_S = 86_400.0
"""Age in seconds at which any other file of the spool (an unfinished export) is abandoned."""
_LOCK = ".lock"


def create_and_lock_file(path: Path) -> int:
    """Create and lock a file; return the descriptor, which holds the lock until
    closed.

    Raises:
        FileExistsError: the file exists.
    """
    while True:
        # Closed in children, which would hold the lock after this process's death.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # removed as abandoned before it was locked


def remove_abandoned_spool_files(folder: Path) -> None:
    """Remove uploads that no living process has locked, and other files older than a day."""
    for path in folder.iterdir():
        try:
            if not path.name.startswith(PREFIX):
                if path.stat().st_mtime < time.time() - OTHER_S:
                    path.unlink()
                continue
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process has removed it
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            continue  # its process is alive
        finally:
            os.close(fd)


class ScratchFolder:
    """A temporary folder of this process in `root`, with a lock file beside it."""

    def __init__(self, root: Path) -> None:
        self._path = root / secrets.token_hex(8)
        self._lock = self._path.with_suffix(_LOCK)
        self._fd: int | None = None

    def create_scratch_folder(self) -> Path:
        """Create this process's scratch folder, remove those of dead processes, and return its
        path.
        """
        remove_abandoned_scratch_folders(self._path.parent)
        # The lock comes first: a folder without a lock file would never be removed.
        self._fd = create_and_lock_file(self._lock)
        self._path.mkdir(mode=0o700)
        return self._path

    def remove_scratch_folder(self) -> None:
        """Remove this process's scratch folder, if it exists."""
        if self._fd is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._lock.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None


def remove_abandoned_scratch_folders(root: Path) -> None:
    """Remove the scratch folders in `root` that no living process has locked."""
    for lock in root.glob(f"*{_LOCK}"):
        try:
            fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process has removed it
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The lock file goes last: a crash between the two must leave the mark by which the rest
            # is found.
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
        except BlockingIOError:
            continue  # its owner is alive
        finally:
            os.close(fd)
