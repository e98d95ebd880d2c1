"""Room that is kept for the day on which the disk is full: then what makes room must still be possible.

To delete a model or cancel a job takes a few rows in the database, and on a full disk there is no room for a row. So
a file of `PERENNIAL_RESERVE_BYTES` lies in the data directory, and is removed when the disk is full and somebody
deletes or cancels. Workers make it again once there is room.
"""

import contextlib
import os
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

NAME = "reserve"
FULL_BYTES = 4 << 20
"""A disk with less room than this counts as full."""
SPARE = 4
"""The file is made only where so many of it would fit: a disk that is nearly full is left alone."""


def fill(data_dir: Path, size: int) -> bool:
    """Make the file, unless it is there or there is little room; returns whether it is there.

    Args:
        size: in bytes; 0: none is wanted.
    """
    path = data_dir / NAME
    if path.exists():
        return True
    if not size or _free(data_dir) < SPARE * size:
        return False
    new = path.with_name(f".{NAME}.{os.getpid()}")
    try:
        with new.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        new.replace(path)
    except OSError as error:  # no room after all, or a file system that reserves none
        log.warning("no reserve on the disk of the data directory", error=error.strerror)
        with contextlib.suppress(OSError):
            new.unlink()
        return False
    return True


def release(data_dir: Path) -> bool:
    """Remove the file: there is room again, for small things. False: it was not there."""
    try:
        (data_dir / NAME).unlink()
    except OSError:
        return False
    log.warning("the disk of the data directory is full: its reserve was released", folder=str(data_dir))
    return True


def release_if_full(data_dir: Path) -> bool:
    """Remove the file where the disk of the data directory is full; returns whether it did."""
    return is_full(data_dir) and release(data_dir)


def is_full(data_dir: Path) -> bool:
    """Return whether hardly anything fits on the disk of the data directory; False where it cannot say."""
    try:
        return _free(data_dir) < FULL_BYTES
    except OSError:
        return False


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
