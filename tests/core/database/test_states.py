"""Every state with every action: nothing happens to a job that this file does not name."""

from itertools import product

import pytest

from core.database.states import (
    LEASED,
    TERMINAL,
    TRANSITIONS,
    UNCHANGED,
    UNFINISHED,
    JobAction,
    JobState,
    find_next_job_state,
)
from core.errors import WrongState

A = JobAction
# action → state → what follows; "=" changes nothing, a missing state is refused.
EXPECTED: dict[JobAction, dict[str, str]] = {
    A.VALIDATE: {"queued": "validating"},
    A.START: {"queued": "running", "validating": "running"},
    A.REJECT: {
        "validating": "rejected",
        "running": "rejected",
        "cancelling": "cancelled",
        "pausing": "rejected",
    },
    A.PUBLISH: {"running": "succeeded"},
    A.FINISH: {"validating": "succeeded", "running": "succeeded"},
    A.FAIL: {
        "validating": "failed",
        "running": "failed",
        "cancelling": "cancelled",
        "pausing": "failed",
    },
    A.REQUEUE: {
        "validating": "queued",
        "running": "queued",
        "cancelling": "cancelled",
        "pausing": "paused",
    },
    A.RELEASE: {
        "validating": "queued",
        "running": "queued",
        "cancelling": "cancelled",
        "pausing": "paused",
    },
    A.STOPPED: {"cancelling": "cancelled", "pausing": "paused"},
    A.CANCEL: {
        "queued": "cancelled",
        "validating": "cancelling",
        "running": "cancelling",
        "pausing": "cancelling",
        "paused": "cancelled",
        "choosing": "cancelled",
        "cancelling": "=",
        "cancelled": "=",
    },
    A.PAUSE: {
        "queued": "paused",
        "validating": "pausing",
        "running": "pausing",
        "pausing": "=",
        "paused": "=",
    },
    A.ASK: {"running": "choosing"},
    A.CHOOSE: {"choosing": "queued"},
    A.RESUME: {"paused": "queued", "queued": "=", "validating": "=", "running": "="},
    A.RETRY: {
        "failed": "queued",
        "cancelled": "queued",
        "rejected": "queued",
        "queued": "=",
        "validating": "=",
        "running": "=",
    },
}


@pytest.mark.parametrize(("state", "action"), list(product(JobState, JobAction)))
def test_every_state_with_every_action(state: JobState, action: JobAction) -> None:
    expected = EXPECTED[action].get(str(state))
    if expected is None:
        with pytest.raises(WrongState) as refused:
            find_next_job_state(state, action)
        assert refused.value.extra == {"state": str(state)}
    else:
        assert find_next_job_state(state, action) is (
            state if expected == "=" else JobState(expected)
        )
        assert find_next_job_state(str(state), action) is find_next_job_state(state, action)


def test_nothing_leaves_a_state_that_is_final() -> None:
    final = TERMINAL - {JobState.FAILED, JobState.CANCELLED, JobState.REJECTED}
    assert not [key for key in TRANSITIONS if key[0] in final]


@pytest.mark.parametrize("ended", [JobState.FAILED, JobState.CANCELLED, JobState.REJECTED])
def test_what_failed_was_rejected_or_cancelled_is_left_by_retry_only(ended: JobState) -> None:
    assert [action for state, action in TRANSITIONS if state is ended] == [JobAction.RETRY]


def test_every_state_is_finished_or_not_and_leased_ones_are_not() -> None:
    assert set(JobState) == TERMINAL | UNFINISHED
    assert not TERMINAL & UNFINISHED
    assert LEASED < UNFINISHED


def test_every_leased_state_survives_the_loss_of_its_worker() -> None:
    for state in LEASED:
        assert find_next_job_state(state, JobAction.REQUEUE) not in LEASED
        assert find_next_job_state(state, JobAction.RELEASE) not in LEASED


def test_no_pair_is_both_a_change_and_no_change() -> None:
    assert not TRANSITIONS.keys() & UNCHANGED


def test_every_state_can_be_reached_from_queued() -> None:
    reached, frontier = {JobState.QUEUED}, [JobState.QUEUED]
    while frontier:
        state = frontier.pop()
        for (source, _), target in TRANSITIONS.items():
            if source is state and target not in reached:
                reached.add(target)
                frontier.append(target)
    assert reached == set(JobState)


def test_every_unfinished_state_can_be_cancelled_and_ends() -> None:
    for state in UNFINISHED:
        state = find_next_job_state(state, JobAction.CANCEL)
        assert (
            state is JobState.CANCELLED
            or find_next_job_state(state, JobAction.STOPPED) is JobState.CANCELLED
        )
