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


class Exit(IntEnum):
    """The exit status of a command."""

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
    Exit.DONE: "done",
    Exit.ERROR: "an error",
    Exit.USAGE: "wrong usage",
    Exit.NOT_FOUND: "not found",
    Exit.AUTH: "no key, or the key does not permit this",
    Exit.UNAVAILABLE: "the service does not respond, or asks to retry later",
    Exit.HELD: "the version is held by the gate",
    Exit.REJECTED: "the batch is rejected",
    Exit.FAILED: "the job failed",
    Exit.CANCELLED: "the job was cancelled",
    Exit.STILL_RUNNING: "the job is still running after `--timeout`, and continues",
    Exit.NO_BASE: "the weights of the model's base cannot be fetched; a batch that was sent is "
    "kept, and waits",
    Exit.INTERRUPTED: "interrupted; the job continues",
}
"""Meaning of each status, as the documentation and `perennial --help` show it."""
# The first match counts, so subclasses come before their bases: a BaseFailed is a JobFailed too.
_STATUS: tuple[tuple[type[PerennialError], Exit], ...] = (
    (GateHeld, Exit.HELD),
    (Rejected, Exit.REJECTED),
    (BaseUnavailable, Exit.NO_BASE),
    (JobFailed, Exit.FAILED),
    (JobCancelled, Exit.CANCELLED),
    (WaitTimeout, Exit.STILL_RUNNING),
    (NotFound, Exit.NOT_FOUND),
    (Unauthorized, Exit.AUTH),
    (Forbidden, Exit.AUTH),
    (NoKey, Exit.AUTH),
    (ServiceUnreachable, Exit.UNAVAILABLE),
    (Unavailable, Exit.UNAVAILABLE),
    (TooManyRequests, Exit.UNAVAILABLE),
    (ConfigError, Exit.USAGE),
)


class Detached(Exception):
    """Ctrl-C while following a job: the job continues, and the message says how to follow it
    again."""


def choose_exit_status(error: PerennialError) -> Exit:
    """Return the exit status of an error: that of the first matching kind, else 1."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), Exit.ERROR)


def describe_statuses() -> str:
    """Return all statuses in one sentence, which ends `perennial --help`."""
    return "; ".join(f"{status.value} {text.replace('`', '')}" for status, text in MEANINGS.items())
