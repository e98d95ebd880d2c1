"""Unfinished downloads: files that outlive an attempt, so that the next one can resume.

Each lies under its repository and commit. A writer locks its file, and the kernel releases the lock
however the process ends. The chores remove abandoned files.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = "downloads"
"""Folder in the data directory."""
SUFFIX = ".part"


def get_hub_repository_download_folder(root: Path, repository: str) -> Path:
    """Return the folder that holds the downloads of one hub repository."""
    return root / repository.replace("/", "--")


@contextmanager
def open_and_lock_file_to_append(path: Path) -> Iterator[int]:
    """Open a file for appending, created if missing; lock it, and yield its descriptor.

    Wait for other writers to finish.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # otherwise it was removed meanwhile
            if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
                yield fd
                return
        finally:
            os.close(fd)


def remove_hub_repository_downloads(root: Path, repository: str) -> None:
    """Remove the remaining files of a hub repository's downloads."""
    shutil.rmtree(get_hub_repository_download_folder(root, repository), ignore_errors=True)


def remove_old_unfinished_hub_downloads(root: Path, older_s: float, most_bytes: int) -> None:
    """Remove downloads not written to for `older_s` seconds, then the oldest beyond `most_bytes` in
    all.

    A download under way is not removed.
    """
    downloads = sorted((path.stat().st_mtime, path) for path in root.glob(f"*/*/*{SUFFIX}"))
    total = sum(path.stat().st_size for _, path in downloads)
    for modified, path in downloads:
        if modified > time.time() - older_s and total <= most_bytes:
            continue
        size = path.stat().st_size
        if _remove_download_if_unlocked(path):
            total -= size


def _remove_download_if_unlocked(path: Path) -> bool:
    """Remove a file and its empty folders, unless a writer has locked it.

    Return True if it was removed.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Under the lock: a writer that waits for it sees that the file was replaced.
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    for folder in (path.parent, path.parent.parent):
        if not any(folder.iterdir()):
            folder.rmdir()
    return True
