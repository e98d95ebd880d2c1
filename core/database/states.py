"""The states of a job, and the only table of their transitions.

Every change of a job's state goes through `find_next_job_state(state, action)`; no other code knows
which state follows which.
"""

from enum import StrEnum

from core.errors import WrongState


class JobState(StrEnum):
    """States of a job, such as queued or running; in `LEASED` states, a worker owns the job."""

    QUEUED = "queued"
    VALIDATING = "validating"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CHOOSING = "choosing"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    FAILED = "failed"


class JobAction(StrEnum):
    """Action on a job that changes its state, such as claim, pause or publish."""

    VALIDATE = "validate"  # claimed, and the archive is not decoded yet
    START = "start"  # claimed with a dataset, or validation is done
    REJECT = "reject"
    PUBLISH = "publish"
    FINISH = "finish"  # the work of a job that makes no version is done
    FAIL = "fail"  # an error in data or code, or all attempts used up
    REQUEUE = "requeue"  # the lease expired or the attempt died: try again
    RELEASE = "release"  # orderly shutdown of the worker
    STOPPED = "stopped"  # the worker has stopped the child as requested
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    ASK = "ask"  # all trials are measured, and a person chooses one
    CHOOSE = "choose"  # a trial is chosen


S, A = JobState, JobAction

TRANSITIONS: dict[tuple[JobState, JobAction], JobState] = {
    (S.QUEUED, A.VALIDATE): S.VALIDATING,
    (S.QUEUED, A.START): S.RUNNING,
    (S.QUEUED, A.CANCEL): S.CANCELLED,
    (S.QUEUED, A.PAUSE): S.PAUSED,
    (S.VALIDATING, A.START): S.RUNNING,
    (S.VALIDATING, A.REJECT): S.REJECTED,
    (S.VALIDATING, A.FINISH): S.SUCCEEDED,
    (S.VALIDATING, A.FAIL): S.FAILED,
    (S.VALIDATING, A.REQUEUE): S.QUEUED,
    (S.VALIDATING, A.RELEASE): S.QUEUED,
    (S.VALIDATING, A.CANCEL): S.CANCELLING,
    (S.VALIDATING, A.PAUSE): S.PAUSING,
    (S.RUNNING, A.PUBLISH): S.SUCCEEDED,
    (S.RUNNING, A.FINISH): S.SUCCEEDED,
    (S.RUNNING, A.REJECT): S.REJECTED,  # its recipe held the batch because of the findings
    (S.RUNNING, A.FAIL): S.FAILED,
    (S.RUNNING, A.REQUEUE): S.QUEUED,
    (S.RUNNING, A.RELEASE): S.QUEUED,
    (S.RUNNING, A.CANCEL): S.CANCELLING,
    (S.RUNNING, A.PAUSE): S.PAUSING,
    # A requested stop ends as requested, however the attempt ended.
    (S.CANCELLING, A.STOPPED): S.CANCELLED,
    (S.CANCELLING, A.REJECT): S.CANCELLED,
    (S.CANCELLING, A.FAIL): S.CANCELLED,
    (S.CANCELLING, A.REQUEUE): S.CANCELLED,
    (S.CANCELLING, A.RELEASE): S.CANCELLED,
    (S.PAUSING, A.STOPPED): S.PAUSED,
    (S.PAUSING, A.REJECT): S.REJECTED,
    (S.PAUSING, A.FAIL): S.FAILED,
    (S.PAUSING, A.REQUEUE): S.PAUSED,
    (S.PAUSING, A.RELEASE): S.PAUSED,
    (S.PAUSING, A.CANCEL): S.CANCELLING,
    (S.PAUSED, A.RESUME): S.QUEUED,
    (S.PAUSED, A.CANCEL): S.CANCELLED,
    (S.RUNNING, A.ASK): S.CHOOSING,
    (S.CHOOSING, A.CHOOSE): S.QUEUED,
    (S.CHOOSING, A.CANCEL): S.CANCELLED,
    (S.FAILED, A.RETRY): S.QUEUED,
    (S.CANCELLED, A.RETRY): S.QUEUED,
    (S.REJECTED, A.RETRY): S.QUEUED,  # only if a recipe held the batch: see core.tasks.retries
}

# Requesting a state that the job is in, or about to reach, changes nothing and is not an error.
UNCHANGED: frozenset[tuple[JobState, JobAction]] = frozenset(
    {
        (S.CANCELLING, A.CANCEL),
        (S.CANCELLED, A.CANCEL),
        (S.PAUSING, A.PAUSE),
        (S.PAUSED, A.PAUSE),
        (S.QUEUED, A.RESUME),
        (S.VALIDATING, A.RESUME),
        (S.RUNNING, A.RESUME),
        (S.QUEUED, A.RETRY),
        (S.VALIDATING, A.RETRY),
        (S.RUNNING, A.RETRY),
    }
)

LEASED = frozenset({S.VALIDATING, S.RUNNING, S.PAUSING, S.CANCELLING})
TERMINAL = frozenset({S.SUCCEEDED, S.REJECTED, S.FAILED, S.CANCELLED})
UNFINISHED = frozenset(JobState) - TERMINAL
"""A job in one of these keeps its place: later jobs of the same model wait."""


def find_next_job_state(state: JobState | str, action: JobAction) -> JobState:
    """Return the state that a job has after an action; raise an error if the action is not allowed.

    Raises:
        WrongState: the action is not allowed now; `extra["state"]` is the current state.
    """
    state = JobState(state)
    if (state, action) in UNCHANGED:
        return state
    try:
        return TRANSITIONS[state, action]
    except KeyError:
        raise WrongState(
            f"A job that is {state} cannot {action}.", extra={"state": str(state)}
        ) from None
