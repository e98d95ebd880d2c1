"""A disk that is full, told apart from one that fails: room can be made, and work goes on then."""

import errno

from core.errors import NoSpace, Unavailable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: BaseException) -> bool:
    """Whether an error of the operating system says that there is no room, or no quota, left."""
    return isinstance(error, OSError) and error.errno in _FULL


def failed(what: str, error: OSError) -> Unavailable:
    """The typed error for a failure of the disk under `what` (a noun phrase that begins a sentence)."""
    reason = error.strerror or type(error).__name__
    return (NoSpace if is_full(error) else Unavailable)(f"{what} failed: {reason}.")
