"""File descriptors of this process: how many it may have, and what says that it has none left."""

import errno
import resource

_SHORT = frozenset({errno.EMFILE, errno.ENFILE})
_DEPTH = 8


def is_short(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, says that no file could be opened for want of descriptors."""
    for _ in range(_DEPTH):
        if error is None:
            return False
        if isinstance(error, OSError) and error.errno in _SHORT:
            return True
        error = error.__cause__ or error.__context__
    return False


def raise_limit(wanted: int) -> int:
    """Let this process have `wanted` descriptors, or as many as the system allows; return how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
