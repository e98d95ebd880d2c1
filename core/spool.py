"""Files of uploads, locked while their process lives and removed after its death.

The kernel releases a lock however a process ends, so an upload whose lock is free has no owner.
Several API processes may share one data directory.
"""

import fcntl
import os
import time
from pathlib import Path

PREFIX = "upload-"
OTHER_S = 86_400.0
"""Age in seconds at which any other file of the spool (an unfinished export) is abandoned."""


def create_locked(path: Path) -> int:
    """Create and lock an upload's file; return the descriptor, which holds the lock until closed.

    Raises:
        FileExistsError: the file exists.
    """
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # removed as abandoned before it was locked


def remove_abandoned(folder: Path) -> None:
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
