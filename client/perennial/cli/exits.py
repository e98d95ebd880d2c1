"""Exit statuses of all commands, and the status of each error."""

from enum import IntEnum

from perennial.errors import (
    BaseUnavailable,
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
    WaitTimeout,
)


class ExitStatus(IntEnum):
    """Exit statuses of the command line, by kind of error."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    UNAVAILABLE = 5
    HELD = 10
    REJECTED = 11
    FAILED = 12
    CANCELLED = 13
    STILL_RUNNING = 14
    NO_BASE = 15
    # 128 + SIGINT, as shells report it.
    INTERRUPTED = 130


MEANINGS = {
    ExitStatus.DONE: "done",
    ExitStatus.ERROR: "an error",
    ExitStatus.USAGE: "wrong usage",
    ExitStatus.NOT_FOUND: "not found",
    ExitStatus.AUTH: "no key, or the key does not permit this",
    ExitStatus.UNAVAILABLE: "the service does not respond, or asks to retry later",
    ExitStatus.HELD: "the version is held by the gate",
    ExitStatus.REJECTED: "the batch is rejected",
    ExitStatus.FAILED: "the job failed",
    ExitStatus.CANCELLED: "the job was cancelled",
    ExitStatus.STILL_RUNNING: "the job is still running after `--timeout`, and continues",
    ExitStatus.NO_BASE: "the weights of the model's base cannot be fetched; a batch that was sent "
    "is kept, and waits",
    ExitStatus.INTERRUPTED: "interrupted; the job continues",
}
"""Meaning of each status, as the documentation and `perennial --help` show it."""
# The first match counts, so subclasses come before their bases: a BaseFailed is a JobFailed too.
_STATUS: tuple[tuple[type[PerennialError], ExitStatus], ...] = (
    (GateHeld, ExitStatus.HELD),
    (Rejected, ExitStatus.REJECTED),
    (BaseUnavailable, ExitStatus.NO_BASE),
    (JobFailed, ExitStatus.FAILED),
    (JobCancelled, ExitStatus.CANCELLED),
    (WaitTimeout, ExitStatus.STILL_RUNNING),
    (NotFound, ExitStatus.NOT_FOUND),
    (Unauthorized, ExitStatus.AUTH),
    (Forbidden, ExitStatus.AUTH),
    (NoKey, ExitStatus.AUTH),
    (ServiceUnreachable, ExitStatus.UNAVAILABLE),
    (Unavailable, ExitStatus.UNAVAILABLE),
    (TooManyRequests, ExitStatus.UNAVAILABLE),
    (ConfigError, ExitStatus.USAGE),
)


class FollowInterrupted(Exception):
    """Ctrl-C while following a job: the job continues, and the message says how to follow it
    again."""


def choose_exit_status_for_error(error: PerennialError) -> ExitStatus:
    """Return the exit status for an error, by its type."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), ExitStatus.ERROR)


def describe_exit_statuses() -> str:
    """Describe all exit statuses in one sentence, for the end of `perennial --help`."""
    return "; ".join(f"{status.value} {text.replace('`', '')}" for status, text in MEANINGS.items())
