import time
from typing import Any

from sqlalchemy.exc import OperationalError

from core.db.states import State
from worker.heartbeat import LOOK_S, Heartbeat


def within(seconds: float, condition: Any) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


def test_it_beats_at_once_and_then_six_times_a_lease() -> None:
    beats: list[float] = []

    def beat() -> State:
        beats.append(time.monotonic())
        return State.RUNNING

    with Heartbeat(beat, lambda: State.RUNNING, 0.6):
        assert within(0.6 * 5, lambda: len(beats) >= 7)
    assert beats[6] - beats[0] >= 0.55  # a busy machine may be late, never early


def test_a_pause_is_heard_between_beats() -> None:
    state = [State.RUNNING]
    with Heartbeat(lambda: state[0], lambda: state[0], 60.0) as beat:
        assert beat.asked is None
        state[0] = State.PAUSING
        assert within(2, lambda: beat.asked is State.PAUSING)


def test_a_call_to_wake_is_heard_at_once() -> None:
    state = [State.RUNNING]
    with Heartbeat(lambda: state[0], lambda: state[0], 600.0) as beat:
        time.sleep(0.1)
        state[0] = State.CANCELLING
        beat.wake()
        assert within(LOOK_S / 2, lambda: beat.asked is State.CANCELLING)


def test_a_lost_lease_is_final() -> None:
    answers: list[State | None] = [State.RUNNING, None, State.RUNNING]
    with Heartbeat(lambda: answers.pop(0), lambda: State.RUNNING, 0.12) as beat:
        assert within(2, lambda: beat.lost)
        time.sleep(0.1)
        assert beat.lost


def test_an_outage_of_the_database_is_not_a_lost_lease() -> None:
    calls: list[int] = []

    def beat() -> State:
        calls.append(1)
        if len(calls) < 5:
            raise OperationalError("UPDATE", None, Exception("gone"))
        return State.PAUSING

    with Heartbeat(beat, lambda: State.RUNNING, 0.12) as heart:
        assert not heart.lost
        assert within(2, lambda: len(calls) >= 5)
        assert not heart.lost


def test_after_an_outage_it_renews_at_once_and_does_not_only_look() -> None:
    out = [True]
    renewed: list[float] = []

    def beat() -> State:
        if out[0]:
            raise OperationalError("UPDATE", None, Exception("gone"))
        renewed.append(time.monotonic())
        return State.RUNNING

    with Heartbeat(beat, lambda: State.RUNNING, 600.0):  # its next beat would be due in 100 s
        time.sleep(0.1)
        out[0] = False
        assert within(LOOK_S * 5, lambda: renewed)
