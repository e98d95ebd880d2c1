"""A run says that it goes on, in loops that report nothing else, and no more often than needed."""

from pathlib import Path

import pytest
from streams import Bench

from core.contract.jobs.job_event import JobEvent
from core.learning.training import job_process
from core.learning.training.job_process import PULSE_PERIOD_S, ThrottledAliveEventEmitter


class Clock:
    """Stands in for the module `time`."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(job_process, "time", made)
    return made


def test_signs_of_life_come_at_most_once_in_a_period(clock: Clock) -> None:
    told: list[JobEvent] = []
    alive = ThrottledAliveEventEmitter(told.append)
    for _ in range(100):
        alive()
        clock.now += PULSE_PERIOD_S / 10
    assert len(told) == 10


@pytest.mark.parametrize("method", ["ewc", "icarl", "mas"])
def test_the_end_of_a_task_says_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(job_process, "PULSE_PERIOD_S", 0.0)
    events = Bench(tmp_path, "class").stream(1, method=method).events
    told = [e["phase"] if e["event"] == "phase" else e["event"] for e in events]
    assert "alive" in told[told.index("consolidate") : told.index("evaluate")]
