"""Unfinished downloads: files that outlive an attempt, so that the next one goes on where it ended.

Each lies under its repository and commit. Who writes to one locks it; the kernel lets go of the lock however
the process ends. What nobody goes on with is removed by the chores.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = "downloads"
"""In the data directory."""
SUFFIX = ".part"


def folder_of(root: Path, repository: str) -> Path:
    """The folder of a repository's downloads."""
    return root / repository.replace("/", "--")


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor to append to the file, made when missing; waits until nobody else has it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):  # else it was removed meanwhile
                yield fd
                return
        finally:
            os.close(fd)


def forget(root: Path, repository: str) -> None:
    """Remove what is left of a repository's downloads."""
    shutil.rmtree(folder_of(root, repository), ignore_errors=True)


def remove_old(root: Path, older_s: float, most_bytes: int) -> None:
    """Remove downloads that nobody wrote to for `older_s` seconds, and beyond `most_bytes` in all the oldest
    ones.

    One that is under way stays.
    """
    found = sorted((path.stat().st_mtime, path) for path in root.glob(f"*/*/*{SUFFIX}"))
    total = sum(path.stat().st_size for _, path in found)
    for modified, path in found:
        if modified > time.time() - older_s and total <= most_bytes:
            continue
        size = path.stat().st_size
        if _removed(path):
            total -= size


def _removed(path: Path) -> bool:
    """Remove a file and its empty folders, unless somebody has it."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    for folder in (path.parent, path.parent.parent):
        if not any(folder.iterdir()):
            folder.rmdir()
    return True
