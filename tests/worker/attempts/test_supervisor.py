"""The moments at which a child is asked for a state or ended, mostly by a clock that only the test
moves.
"""

import itertools
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from core.contract.jobs.job_event import (
    BestStateFolderReadyEvent,
    BestStateFoundEvent,
    DoneEvent,
    JobEvent,
    JobFailedEvent,
    LogEvent,
    PhaseEvent,
    ProgressEvent,
    SnapshotEvent,
    StoppedEvent,
)
from core.database.states import JobState
from core.errors import LeaseLost
from tests.worker.conftest import Clock
from worker.attempts.child import ForkServer
from worker.attempts.supervisor import (
    TICK_S,
    ProcessOutcome,
    SupervisionPeriodsAndLimits,
    supervise_job_process,
)

NEVER = SupervisionPeriodsAndLimits(snapshot_s=1000, anytime_s=1000, stall_s=1000, grace_s=1000)
DONE, LOG = DoneEvent(path="/r"), LogEvent(level="info", message="m")
BEST = BestStateFoundEvent(step=3)
SILENT: list[list[JobEvent]] = []


@dataclass
class Answers:
    """A heartbeat whose answers the test sets."""

    is_lease_lost: bool = False
    requested_state: JobState | None = None


@dataclass
class Kept:
    """A recorder that keeps what it gets."""

    clock: Clock | None = None
    batches: list[list[JobEvent]] = field(default_factory=list)
    snapshots: list[SnapshotEvent] = field(default_factory=list)
    best: list[BestStateFolderReadyEvent] = field(default_factory=list)
    is_lease_lost: bool = False
    outages: int = 0
    takes_s: float = 0.0

    def write_job_events(self, events: list[JobEvent]) -> None:
        if self.is_lease_lost:
            raise LeaseLost("lost")
        self.batches.append(events)

    def register_and_delete_snapshot_folder(self, event: SnapshotEvent) -> None:
        self.snapshots.append(event)

    def register_and_delete_best_state_folder(self, event: BestStateFolderReadyEvent) -> bool:
        if self.clock is not None:
            self.clock.now += self.takes_s
        self.best.append(event)
        return len(self.best) > self.outages


class Scripted:
    """A child that says something in each tick, then nothing; each tick moves the clock on.

    Args:
        obeys: answers in the next tick what it is asked for.
    """

    pid = 0

    def __init__(
        self, clock: Clock, script: Iterable[list[JobEvent]], *, obeys: bool = True
    ) -> None:
        self.clock, self.begin, self.obeys = clock, clock.now, obeys
        self.ended, self.killed_at = False, 0.0
        self.asked: list[tuple[str, float]] = []
        self.script = itertools.chain(script, itertools.repeat([]))
        self.answers: list[JobEvent] = []

    def read_child_events(self, timeout_s: float) -> list[JobEvent]:
        self.clock.now += timeout_s
        answers, self.answers = self.answers, []
        return [*next(self.script), *answers]

    def ask(self, what: str, *answers: JobEvent) -> None:
        self.asked.append((what, self.clock.now - self.begin))
        self.answers += answers if self.obeys else ()

    def request_snapshot(self) -> None:
        self.ask("snapshot", SnapshotEvent(path=Path("/nowhere"), stage=0, epoch=0, step=1))

    def request_best_state_now(self) -> None:
        self.ask("anytime", BestStateFolderReadyEvent(path=Path("/nowhere")))

    def request_stop(self) -> None:
        self.ask(
            "stop", SnapshotEvent(path=Path("/nowhere"), stage=0, epoch=0, step=1), StoppedEvent()
        )

    def kill_process(self) -> None:
        self.ended, self.killed_at = True, self.clock.now - self.begin

    def close_and_wait(self) -> int:
        return -signal.SIGKILL if self.killed_at else 0


Run = Callable[..., tuple[ProcessOutcome, Scripted]]


@pytest.fixture
def kept(clock: Clock) -> Kept:
    return Kept(clock)


@pytest.fixture
def run(clock: Clock, kept: Kept) -> Run:
    """Supervises a scripted child: the outcome, and the child."""

    def supervise_script(
        script: Iterable[list[JobEvent]] = SILENT, *, beat: Answers | None = None, stop: bool = False,
        obeys: bool = True, **periods: float,
    ) -> tuple[ProcessOutcome, Scripted]:  # fmt: skip
        child: Any = Scripted(clock, script, obeys=obeys)
        return supervise_job_process(
            child, beat or Answers(), kept, replace(NEVER, **periods), lambda: stop
        ), child

    return supervise_script


def make_silence(seconds: float) -> Iterator[list[JobEvent]]:
    """Return so long a silence."""
    return iter([[]] * round(seconds / TICK_S))


def make_progress(number: int) -> ProgressEvent:
    return ProgressEvent(phase="train", step=number, total_steps=50, images=8)


def test_events_are_recorded_once_a_second_and_a_new_phase_and_its_first_progress_at_once(
    run: Run, kept: Kept
) -> None:
    every = [make_progress(number) for number in range(12)]
    later = [[PhaseEvent(phase="evaluate")], [every[10]], [every[11]], [DONE]]
    run([*([event] for event in every[:10]), *later])
    assert [len(batch) for batch in kept.batches] == [1, 4, 4, 2, 1, 1]
    assert [
        event for batch in kept.batches for event in batch if isinstance(event, ProgressEvent)
    ] == every


@pytest.mark.parametrize(
    ("beat", "ending"),
    [
        (Answers(is_lease_lost=True), "lost"),
        (Answers(requested_state=JobState.CANCELLING), "cancelled"),
    ],
    ids=["lost", "cancelled"],
)
def test_a_lost_lease_and_a_cancel_end_the_child_at_once(
    run: Run, beat: Answers, ending: str
) -> None:
    outcome, child = run([[LOG]], beat=beat)
    assert (outcome.ending, child.killed_at) == (ending, TICK_S)


def test_with_a_lost_lease_nothing_more_is_recorded(run: Run, kept: Kept) -> None:
    run(
        [[LOG, SnapshotEvent(path=Path("/nowhere"), stage=0, epoch=0, step=1)]],
        beat=Answers(is_lease_lost=True),
    )
    assert kept.batches == kept.snapshots == []


def test_a_refused_write_ends_the_child_as_lost(run: Run, kept: Kept) -> None:
    kept.is_lease_lost = True
    outcome, child = run([[PhaseEvent(phase="train")]])
    assert (outcome.ending, child.killed_at) == ("lost", TICK_S)


def test_a_child_that_does_not_stop_is_ended_after_the_grace(run: Run) -> None:
    outcome, child = run(stop=True, obeys=False, grace_s=2.0)
    assert (outcome.ending, child.asked, child.killed_at) == ("stopped", [("stop", TICK_S)], 2.5)


def test_a_silent_child_is_ended_as_stalled(run: Run) -> None:
    outcome, child = run([*make_silence(3.0), [LOG]], stall_s=5.0)
    assert (outcome.ending, child.killed_at) == ("stalled", 3.25 + 5.25)


def test_snapshots_are_asked_for_every_period(run: Run, kept: Kept) -> None:
    _, child = run([*make_silence(12.0), [DONE]], snapshot_s=3.0)
    assert child.asked == [
        ("snapshot", at) for at in (3.0, 6.25, 9.5)
    ]  # so long after the last one
    assert len(kept.snapshots) == 3 and kept.best == []


def test_a_snapshot_that_costs_much_comes_more_rarely(run: Run) -> None:
    costly = SnapshotEvent(path=Path("/nowhere"), stage=0, epoch=0, step=1, cost_s=0.5)
    _, child = run([[costly], *make_silence(12.0), [DONE]], snapshot_s=3.0)
    assert child.asked == [("snapshot", 10.25)]  # a twentieth of the time, at most


def test_a_best_state_is_asked_for_in_its_time_and_once_for_each_better_one(
    run: Run, kept: Kept
) -> None:
    _, child = run([[BEST], *make_silence(6.0), [BEST], *make_silence(6.0), [DONE]], anytime_s=2.0)
    assert child.asked == [("anytime", 2.0), ("anytime", 6.5)]
    assert len(kept.best) == 2 and kept.snapshots == []


def test_a_best_state_that_could_not_be_kept_is_asked_for_again(run: Run, kept: Kept) -> None:
    kept.outages = 1
    _, child = run([[BEST], *make_silence(8.0), [DONE]], anytime_s=2.0)
    assert child.asked == [("anytime", 2.0), ("anytime", 4.25)] and len(kept.best) == 2


def test_a_child_is_not_silent_while_its_state_is_being_kept(run: Run, kept: Kept) -> None:
    kept.takes_s = 100.0
    outcome, _ = run(
        [[BestStateFolderReadyEvent(path=Path("/nowhere"))], *make_silence(4.0), [DONE]],
        stall_s=5.0,
    )
    assert outcome.ending == "done"


def test_a_child_that_finished_but_lingers_is_not_waited_for(run: Run) -> None:
    outcome, child = run([[DONE]])
    assert (outcome.ending, child.clock.now - child.begin) == ("done", TICK_S)


def test_a_child_that_has_had_its_time_is_ended(run: Run) -> None:
    outcome, child = run(([LOG] for _ in itertools.count()), left_s=3.0)
    assert (outcome.ending, child.killed_at) == ("overtime", 3.25)


def test_the_time_of_a_child_that_was_asked_to_stop_is_its_grace(run: Run) -> None:
    outcome, _ = run(beat=Answers(requested_state=JobState.PAUSING), left_s=0.0)
    assert outcome.ending == "stopped"


# Real processes.


@pytest.fixture
def watch(zygote: ForkServer, spec: Callable[..., Path]) -> Callable[..., ProcessOutcome]:
    """Supervises a process of the stand-in job."""

    def supervise_child(
        *lines: object, beat: Answers | None = None, kept: Kept | None = None, stop: bool = False
    ) -> Any:
        return supervise_job_process(
            zygote.fork_child(spec(*lines)), beat or Answers(), kept or Kept(), NEVER, lambda: stop
        )

    return supervise_child


def test_a_finished_child_is_done_and_all_its_events_are_recorded(watch: Any) -> None:
    kept, events = Kept(), [make_progress(number) for number in range(50)]
    outcome = watch(
        *(("emit", event.to_json()) for event in events), ("emit", DONE.to_json()), kept=kept
    )
    assert outcome == ProcessOutcome("done", DONE, 0)
    assert [event for batch in kept.batches for event in batch] == events


def test_a_child_that_dies_without_a_last_word_is_died_with_its_signal(watch: Any) -> None:
    outcome = watch(("die", int(signal.SIGKILL)))
    assert (outcome.ending, outcome.status) == ("died", -signal.SIGKILL)


def test_an_error_event_is_the_outcome(watch: Any) -> None:
    error = {"event": "error", "kind": "data", "message": "m", "traceback": ""}
    outcome = watch(("emit", error))
    assert (outcome.ending, outcome.event) == ("error", JobFailedEvent.from_json(error))


def test_a_cancelled_child_is_killed(watch: Any) -> None:
    outcome = watch(("sleep", 600), beat=Answers(requested_state=JobState.CANCELLING))
    assert (outcome.ending, outcome.status) == ("cancelled", -signal.SIGKILL)


@pytest.mark.parametrize("shutdown", [False, True])
def test_a_pause_and_a_shutdown_stop_the_child_after_a_snapshot(watch: Any, shutdown: bool) -> None:
    kept, beat = Kept(), Answers(requested_state=None if shutdown else JobState.PAUSING)
    outcome = watch(("obey", None), beat=beat, kept=kept, stop=shutdown)
    assert (outcome.ending, len(kept.snapshots)) == ("stopped", 1)


def test_no_child_outlives_a_failing_recorder(
    zygote: ForkServer, spec: Callable[..., Path], gone: Callable[[int], bool]
) -> None:
    class Broken(Kept):
        def write_job_events(self, events: list[JobEvent]) -> None:
            raise ZeroDivisionError

    child = zygote.fork_child(spec(("emit", LOG.to_json()), ("sleep", 600)))
    with pytest.raises(ZeroDivisionError):
        supervise_job_process(child, Answers(), Broken(), NEVER, lambda: False)
    assert gone(child.pid)
