"""Files that are being uploaded: locked while their process lives, removed when it died.

The kernel lets go of a lock however a process ends, so an upload whose lock can be had belongs to nobody.
Several API processes may share one data directory.
"""

import fcntl
import os
import time
from pathlib import Path

PREFIX = "upload-"
OTHER_S = 86_400.0
"""Age at which a file of the spool that is no upload (an unfinished export) is abandoned."""


def create(path: Path) -> int:
    """Create an upload's file, locked; return the descriptor, which holds the lock until it is closed.

    Raises:
        FileExistsError: there is such a file.
    """
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # taken for abandoned before it was locked


def remove_abandoned(folder: Path) -> None:
    """Remove uploads that no living process holds, and other files older than a day."""
    for path in folder.iterdir():
        try:
            if not path.name.startswith(PREFIX):
                if path.stat().st_mtime < time.time() - OTHER_S:
                    path.unlink()
                continue
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process was faster
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            continue  # under way
        finally:
            os.close(fd)
