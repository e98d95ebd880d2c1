"""Reserved disk space, released when the disk is full so that users can still free space.

Deleting a model or cancelling a job takes a few rows in the database, for which a full disk has no
room. A file of `PERENNIAL_RESERVE_BYTES` in the data directory is therefore removed when the disk
is full and somebody deletes or cancels. Workers make it again once there is room.
"""

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

import structlog

log = structlog.get_logger(__name__)

NAME = "reserve"
FULL_BYTES = 4 << 20
"""A disk with less free space than this counts as full, in bytes."""
SPARE = 4
"""The file is made only if so many of it would fit, so that a nearly full disk is left alone."""


def make_disk_reserve_file(data_dir: Path, size: int) -> bool:
    """Create a reserve file, which is deleted when the disk is full, unless there is little room.

    Args:
        data_dir: the data directory.
        size: bytes; 0 makes no file.

    Returns:
        Whether the file exists now.
    """
    path = data_dir / NAME
    if path.exists():
        return True
    if not size or _count_free_disk_bytes(data_dir) < SPARE * size:
        return False
    # A name of its own: several workers may make the file at once.
    new = path.with_name(f".{NAME}.{os.getpid()}")
    try:
        with new.open("wb") as file:
            # A file that is merely extended is sparse and reserves nothing.
            _fill_file_to_reserve_space(file, size)
        new.replace(path)
    except OSError as error:  # no room after all, or a file system that cannot allocate in advance
        log.warning("no reserve on the disk of the data directory", error=error.strerror)
        with contextlib.suppress(OSError):
            new.unlink()
        return False
    return True


def _fill_file_to_reserve_space(file: BinaryIO, size: int) -> None:
    """Fill a new file with `size` bytes that occupy their place on the disk."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    # macOS lacks it.
    block = bytes(1 << 20)
    for begin in range(0, size, len(block)):
        file.write(block[: size - begin])


def remove_disk_reserve_file(data_dir: Path) -> bool:
    """Remove the disk's reserve file to make room for small writes; return False if it did not
    exist.
    """
    try:
        (data_dir / NAME).unlink()
    except OSError:
        return False
    log.warning(
        "the disk of the data directory is full: its reserve was released", folder=str(data_dir)
    )
    return True


def remove_disk_reserve_if_disk_full(data_dir: Path) -> bool:
    """Remove the reserve file if the disk of the data directory is full; return True if it was."""
    return is_data_disk_full(data_dir) and remove_disk_reserve_file(data_dir)


def is_data_disk_full(data_dir: Path) -> bool:
    """Return True if the disk of the data directory is full; False if that cannot be determined."""
    try:
        return _count_free_disk_bytes(data_dir) < FULL_BYTES
    except OSError:
        return False


def _count_free_disk_bytes(folder: Path) -> int:
    file_system = os.statvfs(folder)
    # Not `f_bfree`, which counts the blocks that only root may use.
    return file_system.f_bavail * file_system.f_frsize
