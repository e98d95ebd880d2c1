"""File descriptors of this process: their limit, and errors that come from a lack of them."""

import errno
import resource

_SHORT = frozenset({errno.EMFILE, errno.ENFILE})
_DEPTH = 8


def is_out_of_file_descriptors_error(error: BaseException | None) -> bool:
    """Return True if an error or one of its causes means that file descriptors ran out."""
    for _ in range(_DEPTH):
        if error is None:
            return False
        if isinstance(error, OSError) and error.errno in _SHORT:
            return True
        # Libraries such as SQLAlchemy wrap the system's error in their own.
        error = error.__cause__ or error.__context__
    return False


def increase_file_descriptor_limit(needed: int) -> int:
    """Raise this process's limit to `needed` descriptors, or as far as the system allows.

    Returns:
        The number of descriptors that the process may have now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # RLIM_INFINITY is -1 and would compare as less than any number.
    if soft == resource.RLIM_INFINITY:
        return needed
    if soft < needed:
        # Only a privileged process could go beyond the hard limit.
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
