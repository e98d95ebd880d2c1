"""The systems on which the service runs, checked before anything is imported that others lack."""

import sys

REFUSED = (
    "Perennial's service needs Linux or macOS: on Windows, run it in WSL 2 or from the container "
    "image, and use the client as it is."
)
MACOS = "darwin"


def require_supported_platform() -> None:
    """Exit with a message if the service cannot run on this operating system.

    Raises:
        SystemExit: it cannot; the text says what to use instead.
    """
    if sys.platform == "win32":
        raise SystemExit(REFUSED)


def can_platform_fork_with_torch() -> bool:
    """Return True if processes that have loaded torch can be forked safely; False on macOS.

    Frameworks of macOS, which torch uses, end a forked process that calls them.
    """
    return sys.platform != MACOS
