import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from core.db.states import State
from core.errors import LeaseLost
from core.protocol.job_event import AnytimeEvent, DoneEvent, ErrorEvent, JobEvent, SnapshotEvent
from worker.child import Zygote
from worker.supervisor import Outcome, Periods, supervise

Spec = Callable[..., Path]
PROGRESS = {"event": "progress", "phase": "train", "total_steps": 50, "images": 8}
NEVER = Periods(snapshot_s=1000, anytime_s=1000, stall_s=1000, grace_s=1000)


@dataclass
class Answers:
    """A heartbeat whose answers the test sets."""

    lost: bool = False
    asked: State | None = None


@dataclass
class Kept:
    """A recorder that keeps what it gets."""

    batches: list[list[JobEvent]] = field(default_factory=list)
    snapshots: list[SnapshotEvent] = field(default_factory=list)
    best: list[AnytimeEvent] = field(default_factory=list)
    lost: bool = False
    outages: int = 0
    takes_s: float = 0.0

    def record(self, events: list[JobEvent]) -> None:
        if self.lost:
            raise LeaseLost("lost")
        self.batches.append(events)

    def snapshot(self, event: SnapshotEvent) -> None:
        self.snapshots.append(event)

    def anytime(self, event: AnytimeEvent) -> bool:
        time.sleep(self.takes_s)
        self.best.append(event)
        return len(self.best) > self.outages


@pytest.fixture
def watch(zygote: Zygote, spec: Spec) -> Callable[..., tuple[Outcome, float]]:
    """Supervises a scripted child; returns its outcome and the seconds it took."""

    def run(*lines: object, beat: Answers, kept: Kept, periods: Periods = NEVER, stop: bool = False) -> Any:
        child = zygote.spawn(spec(*lines))
        begin = time.monotonic()
        outcome = supervise(child, beat, kept, periods, lambda: stop)
        return outcome, time.monotonic() - begin

    return run


def test_a_finished_child_is_done_and_all_its_events_are_recorded(watch: Any) -> None:
    kept = Kept()
    events = [{**PROGRESS, "step": n} for n in range(50)]
    outcome, _ = watch(
        *(("emit", event) for event in events),
        ("emit", {"event": "done", "path": "/r"}),
        beat=Answers(),
        kept=kept,
    )
    assert outcome == Outcome("done", DoneEvent(path="/r"), 0)
    assert [event.to_json() for batch in kept.batches for event in batch] == events


def test_events_are_recorded_in_batches_of_a_second(watch: Any) -> None:
    kept = Kept()
    lines = [x for n in range(40) for x in (("emit", {**PROGRESS, "step": n}), ("sleep", 0.02))]
    watch(*lines, ("emit", {"event": "done", "path": "/r"}), beat=Answers(), kept=kept)
    assert len(kept.batches) <= 3


def test_a_child_that_dies_without_a_last_word_is_died_with_its_signal(watch: Any) -> None:
    outcome, _ = watch(("die", int(signal.SIGKILL)), beat=Answers(), kept=Kept())
    assert (outcome.ending, outcome.status) == ("died", -signal.SIGKILL)


def test_an_error_event_is_the_outcome(watch: Any) -> None:
    error = {"event": "error", "kind": "data", "message": "m", "traceback": ""}
    outcome, _ = watch(("emit", error), beat=Answers(), kept=Kept())
    assert (outcome.ending, outcome.event) == ("error", ErrorEvent.from_json(error))


def test_a_lost_lease_ends_the_child_at_once_and_records_nothing_more(watch: Any) -> None:
    kept = Kept()
    outcome, took = watch(
        ("emit", {"event": "log", "level": "info", "message": "m"}),
        ("sleep", 60),
        beat=Answers(lost=True),
        kept=kept,
    )
    assert outcome.ending == "lost"
    assert kept.batches == []
    assert took < 3


def test_a_refused_write_ends_the_child_as_lost(watch: Any) -> None:
    outcome, took = watch(
        ("emit", {"event": "log", "level": "info", "message": "m"}),
        ("sleep", 60),
        beat=Answers(),
        kept=Kept(lost=True),
    )
    assert outcome.ending == "lost"
    assert took < 3


def test_a_cancel_ends_the_child_at_once(watch: Any) -> None:
    outcome, took = watch(("sleep", 60), beat=Answers(asked=State.CANCELLING), kept=Kept())
    assert outcome.ending == "cancelled"
    assert took < 3


def test_a_pause_stops_the_child_after_a_snapshot(watch: Any) -> None:
    kept = Kept()
    outcome, _ = watch(("obey", 30), beat=Answers(asked=State.PAUSING), kept=kept)
    assert outcome.ending == "stopped"
    assert len(kept.snapshots) == 1


def test_a_shutdown_stops_the_child_after_a_snapshot(watch: Any) -> None:
    kept = Kept()
    outcome, _ = watch(("obey", 30), beat=Answers(), kept=kept, stop=True)
    assert outcome.ending == "stopped"
    assert len(kept.snapshots) == 1


def test_a_child_that_does_not_stop_is_ended_after_the_grace(watch: Any) -> None:
    periods = replace(NEVER, grace_s=0.5)
    outcome, took = watch(("sleep", 60), beat=Answers(), kept=Kept(), periods=periods, stop=True)
    assert outcome.ending == "stopped"
    assert 0.5 <= took < 4


def test_a_silent_child_is_ended_as_stalled(watch: Any) -> None:
    periods = replace(NEVER, stall_s=0.5)
    outcome, took = watch(("sleep", 60), beat=Answers(), kept=Kept(), periods=periods)
    assert outcome.ending == "stalled"
    assert took < 4


def test_snapshots_are_asked_for_every_period(watch: Any) -> None:
    kept = Kept()
    periods = replace(NEVER, snapshot_s=0.3)
    watch(
        ("obey", 2.0), ("emit", {"event": "done", "path": "/r"}), beat=Answers(), kept=kept, periods=periods
    )
    assert 2 <= len(kept.snapshots) <= 7


def test_a_best_state_is_asked_for_once_for_each_better_one(watch: Any) -> None:
    kept = Kept()
    best, periods = ("emit", {"event": "best", "step": 3}), replace(NEVER, anytime_s=0.2)
    watch(best, ("obey", 1.2), best, ("obey", 0.8), ("emit", {"event": "done", "path": "/r"}),
          beat=Answers(), kept=kept, periods=periods)  # fmt: skip
    assert len(kept.best) == 2 and kept.snapshots == []


def test_a_best_state_that_could_not_be_kept_is_asked_for_again(watch: Any) -> None:
    kept = Kept(outages=1)
    best, periods = ("emit", {"event": "best", "step": 3}), replace(NEVER, anytime_s=0.2)
    watch(
        best,
        ("obey", 1.6),
        ("emit", {"event": "done", "path": "/r"}),
        beat=Answers(),
        kept=kept,
        periods=periods,
    )
    assert len(kept.best) == 2


def test_a_child_is_not_silent_while_its_state_is_being_kept(watch: Any) -> None:
    kept = Kept(takes_s=0.8)
    outcome, _ = watch(
        ("emit", {"event": "anytime", "path": "/nowhere"}),
        ("sleep", 1.1),
        ("emit", {"event": "done", "path": "/r"}),
        beat=Answers(),
        kept=kept,
        periods=replace(NEVER, stall_s=0.7),
    )
    assert outcome.ending == "done"


def test_a_best_state_is_not_asked_for_before_its_time(watch: Any) -> None:
    kept = Kept()
    watch(
        ("emit", {"event": "best", "step": 3}),
        ("obey", 0.6),
        ("emit", {"event": "done", "path": "/r"}),
        beat=Answers(),
        kept=kept,
    )
    assert kept.best == []


@pytest.mark.slow
def test_a_child_that_finished_but_lingers_is_ended(watch: Any) -> None:
    outcome, took = watch(
        ("emit", {"event": "done", "path": "/r"}), ("sleep", 60), beat=Answers(), kept=Kept()
    )
    assert outcome.ending == "done"
    assert took < 12


def test_no_child_outlives_a_failing_recorder(
    zygote: Zygote, spec: Spec, gone: Callable[[int], bool]
) -> None:
    class Broken(Kept):
        def record(self, events: list[JobEvent]) -> None:
            raise ZeroDivisionError

    child = zygote.spawn(spec(("emit", {"event": "log", "level": "info", "message": "m"}), ("sleep", 60)))
    with pytest.raises(ZeroDivisionError):
        supervise(child, Answers(), Broken(), NEVER, lambda: False)
    assert gone(child.pid)
    assert child.pid != os.getpid()


def test_a_child_that_has_had_its_time_is_ended(watch) -> None:
    periods = replace(NEVER, left_s=0.3)
    outcome, seconds = watch(("sleep", 30.0), beat=Answers(), kept=Kept(), periods=periods)
    assert outcome.ending == "overtime" and seconds < 10


def test_the_time_of_a_child_that_was_asked_to_stop_is_its_grace(watch) -> None:
    periods = replace(NEVER, left_s=0.0)
    outcome, _ = watch(("obey", 10.0), beat=Answers(asked=State.PAUSING), kept=Kept(), periods=periods)
    assert outcome.ending == "stopped"
