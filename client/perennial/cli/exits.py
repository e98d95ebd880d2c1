"""The exit status that an error becomes."""

from perennial.errors import (
    ConfigError,
    Forbidden,
    GateHeld,
    JobCancelled,
    JobFailed,
    NoKey,
    NotFound,
    PerennialError,
    Rejected,
    ServiceUnreachable,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

ERROR, USAGE, NOT_FOUND, AUTH, UNAVAILABLE, HELD, REJECTED, FAILED, CANCELLED = 1, 2, 3, 4, 5, 10, 11, 12, 13
INTERRUPTED = 130
_STATUS: tuple[tuple[type[PerennialError], int], ...] = (
    (GateHeld, HELD),
    (Rejected, REJECTED),
    (JobFailed, FAILED),
    (JobCancelled, CANCELLED),
    (NotFound, NOT_FOUND),
    (Unauthorized, AUTH),
    (Forbidden, AUTH),
    (NoKey, AUTH),
    (ServiceUnreachable, UNAVAILABLE),
    (Unavailable, UNAVAILABLE),
    (TooManyRequests, UNAVAILABLE),
    (ConfigError, USAGE),
)


class Detached(Exception):
    """Ctrl-C while a job was followed: the job goes on; the message says how to come back."""


def status_of(error: PerennialError) -> int:
    """The first that fits, else 1."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), ERROR)
