"""Distinction of a full disk, on which work resumes once there is room, from a failing one."""

import errno

from core.errors import ServiceDiskFull, Unavailable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_disk_full_error(error: BaseException) -> bool:
    """Return True if an operating system error means that the disk or quota is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def convert_os_error_to_disk_error(what: str, error: OSError) -> Unavailable:
    """Convert an operating system error about the disk to the service's own error.

    Args:
        what: a noun phrase that begins the message.
        error: the operating system's error.
    """
    # An OSError that was made without a number has no `strerror`.
    reason = error.strerror or type(error).__name__
    return (ServiceDiskFull if is_disk_full_error(error) else Unavailable)(
        f"{what} failed: {reason}."
    )
