"""The states of a job and the one table of their transitions.

Every change of a job's state goes through `after(state, action)`; there is no other place that knows
which state follows which.
"""

from enum import StrEnum

from core.errors import WrongState


class State(StrEnum):
    """Where a job is. `LEASED` states are owned by a worker."""

    QUEUED = "queued"
    VALIDATING = "validating"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    FAILED = "failed"


class Action(StrEnum):
    """What can happen to a job."""

    VALIDATE = "validate"  # claimed, archive not decoded yet
    START = "start"  # claimed with a dataset, or validation done
    REJECT = "reject"
    PUBLISH = "publish"
    FINISH = "finish"  # the work of a job that makes no version is done
    FAIL = "fail"  # a data or code error, or attempts used up
    REQUEUE = "requeue"  # lease expired or attempt died: try again
    RELEASE = "release"  # orderly shutdown of the worker
    STOPPED = "stopped"  # the worker has stopped the child as asked
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"


S, A = State, Action

TRANSITIONS: dict[tuple[State, Action], State] = {
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
    (S.RUNNING, A.REJECT): S.REJECTED,  # its recipe holds what was found in the batch
    (S.RUNNING, A.FAIL): S.FAILED,
    (S.RUNNING, A.REQUEUE): S.QUEUED,
    (S.RUNNING, A.RELEASE): S.QUEUED,
    (S.RUNNING, A.CANCEL): S.CANCELLING,
    (S.RUNNING, A.PAUSE): S.PAUSING,
    # A stop that was asked for ends as asked, however the attempt ended.
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
    (S.FAILED, A.RETRY): S.QUEUED,
    (S.CANCELLED, A.RETRY): S.QUEUED,
    (S.REJECTED, A.RETRY): S.QUEUED,  # only where a recipe held the batch: see core.requests.retries
}

# Asking again for what already is (or is under way) changes nothing and is no error.
UNCHANGED: frozenset[tuple[State, Action]] = frozenset(
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
UNFINISHED = frozenset(State) - TERMINAL
"""A job in one of these keeps its place: later jobs of the same model wait."""


def after(state: State | str, action: Action) -> State:
    """Return the state that follows.

    Raises:
        WrongState: the action is not allowed now; `extra["state"]` names the current state.
    """
    state = State(state)
    if (state, action) in UNCHANGED:
        return state
    try:
        return TRANSITIONS[state, action]
    except KeyError:
        raise WrongState(f"A job that is {state} cannot {action}.", extra={"state": str(state)}) from None
