import threading
from collections.abc import Callable

import pytest
from sqlalchemy.exc import OperationalError

from core.database.states import JobState
from tests.worker.conftest import LIMIT_S, Clock
from worker.attempts import heartbeat
from worker.attempts.heartbeat import LeaseHeartbeat

Answer = Callable[[], JobState | None]


def raise_outage() -> JobState:
    raise OperationalError("UPDATE", None, Exception("gone"))


class Heart(LeaseHeartbeat):
    """A heartbeat whose waits move the clock on instead of taking time, for so many seconds."""

    def __init__(
        self, beat: Answer, look: Answer, lease_s: float, clock: Clock, seconds: float
    ) -> None:
        super().__init__(beat, look, lease_s)
        end = clock.now + seconds

        def advance_clock(seconds: float) -> bool:
            clock.now += seconds
            if clock.now >= end:
                self._end.set()
            return False

        self._wake.wait = advance_clock  # type: ignore[method-assign, assignment]
        self._renew_lease_until_stopped()


def test_it_beats_at_once_and_then_six_times_a_lease_and_looks_every_second_between(
    clock: Clock,
) -> None:
    begin, beats, looks = clock.now, [], []
    Heart(
        lambda: beats.append(clock.now - begin) or JobState.RUNNING,
        lambda: looks.append(clock.now - begin) or JobState.RUNNING,
        lease_s=12.0, clock=clock, seconds=6.0,
    )  # fmt: skip
    assert (beats, looks) == ([0.0, 2.0, 4.0], [1.0, 3.0, 5.0])


@pytest.mark.parametrize("asked", [JobState.PAUSING, JobState.CANCELLING])
def test_a_stop_is_heard_between_beats(clock: Clock, asked: JobState) -> None:
    heart = Heart(lambda: JobState.RUNNING, lambda: asked, 600.0, clock, 0.5)
    assert (heart.job_state, heart.requested_state) == (JobState.RUNNING, None)
    assert (
        Heart(lambda: JobState.RUNNING, lambda: asked, 600.0, clock, 1.5).requested_state is asked
    )


def test_a_call_to_wake_is_heard_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_S", 3600.0)
    beaten, looked = threading.Event(), threading.Event()
    beat = lambda: beaten.set() or JobState.RUNNING  # noqa: E731
    look = lambda: looked.set() or JobState.CANCELLING  # noqa: E731
    with LeaseHeartbeat(beat, look, 36_000.0) as heart:
        assert beaten.wait(LIMIT_S)
        heart.wake_to_read_job_state()
        assert looked.wait(LIMIT_S)
    assert heart.requested_state is JobState.CANCELLING


def test_a_lost_lease_is_final(clock: Clock) -> None:
    answers: list[JobState | None] = [JobState.RUNNING, None, JobState.RUNNING]
    heart = Heart(lambda: answers.pop(0), lambda: JobState.RUNNING, 6.0, clock, 60.0)
    assert heart.is_lease_lost and heart.job_state is None and len(answers) == 1


def test_an_outage_is_no_lost_lease_and_after_it_the_lease_is_renewed_before_its_turn(
    clock: Clock,
) -> None:
    begin, renewed = clock.now, []

    def renew_lease_after_outage() -> JobState:
        if clock.now < begin + 3:
            raise_outage()
        renewed.append(clock.now - begin)
        return JobState.RUNNING

    assert not Heart(
        renew_lease_after_outage, lambda: JobState.RUNNING, 600.0, clock, 2.0
    ).is_lease_lost  # it began in the outage
    assert not Heart(
        renew_lease_after_outage, lambda: JobState.RUNNING, 600.0, clock, 8.0
    ).is_lease_lost
    assert renewed == [3.0]  # the next beat would be due in 100 s


def test_a_look_that_is_not_answered_is_an_outage_too(clock: Clock) -> None:
    asked: list[str] = []
    heart = Heart(lambda: asked.append("beat") or JobState.RUNNING, lambda: asked.append("look") or raise_outage(),
                  600.0, clock, 2.5)  # fmt: skip
    assert asked == ["beat", "look", "beat"] and not heart.is_lease_lost
