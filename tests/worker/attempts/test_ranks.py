"""A job on two gloo ranks through zygote and torchrun: its end, and what a killed rank leaves."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "core" / "learning" / "kit"))

from streams import Bench, Learned

from core.contract.jobs.job_event import BestStateFolderReadyEvent, JobEvent, SnapshotEvent
from core.database.states import JobState
from worker.attempts import ranks
from worker.attempts.child import ForkServer, JobProcess
from worker.attempts.supervisor import (
    ProcessOutcome,
    SupervisionPeriodsAndLimits,
    supervise_job_process,
)

LONG = {"method": "er", "shards": 2, "epochs": 60}
"""A recipe of 360 steps: on two ranks they take longer than the arrival of a snapshot."""


class HeartbeatState:
    """The state of a lease that is valid, without any request."""

    is_lease_lost = False
    requested_state: JobState | None = None


class Recorder:
    """A recorder of events, which calls `on_snapshot` at the first snapshot."""

    def __init__(self, on_snapshot: Callable[[], None]) -> None:
        self.events: list[JobEvent] = []
        self.snapshots: list[Path] = []
        self._on_snapshot = on_snapshot

    def write_job_events(self, events: list[JobEvent]) -> None:
        self.events += events

    def register_and_delete_snapshot_folder(self, event: SnapshotEvent) -> None:
        self.snapshots.append(Path(event.path))
        if len(self.snapshots) == 1:
            self._on_snapshot()

    def register_and_delete_best_state_folder(self, event: BestStateFolderReadyEvent) -> bool:
        return True


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def zygote() -> Iterator[ForkServer]:
    running = ForkServer()
    yield running
    running.end_fork_server()


def start_ranks(zygote: ForkServer, spec: dict[str, Any]) -> JobProcess:
    out = Path(spec["out"])
    out.mkdir(parents=True, exist_ok=True)
    model = {key: spec[key] for key in ("architecture", "image", "scenario")}
    for name in ("parent", "base"):
        spec = {**spec, name: {**spec[name], "manifest": {**model, **spec[name]["manifest"]}}}
    path = out / "spec.json"
    path.write_text(json.dumps({**spec, "ranks": 2}))
    return zygote.fork_child(path)


def list_rank_pids(pid: int) -> list[int]:
    """Return the processes of the ranks that torchrun started, by rank."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    number = {
        int(
            dict(line.split("=", 1) for line in _read_environment(child) if "=" in line)["RANK"]
        ): int(child)
        for child in children
    }
    return [number[rank] for rank in sorted(number)]


def _read_environment(pid: str) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")


def supervise_child(child: JobProcess, recorder: Recorder, snapshot_s: float) -> ProcessOutcome:
    return supervise_job_process(
        child,
        HeartbeatState(),
        recorder,
        SupervisionPeriodsAndLimits(snapshot_s, 60.0, 120.0, 30.0),
        lambda: False,
    )


@pytest.mark.parametrize(
    "victim",
    ["rank 0", "rank 1", "torchrun"],
)
@pytest.mark.campaign  # tests/core/learning/distributed/test_shards.py kills a rank and goes on
def test_a_job_that_lost_a_process_has_died_leaves_none_behind_and_resumes_to_the_same_bits(
    victim: str, zygote: ForkServer, bench: Bench, gone: Callable[[int], bool]
) -> None:
    spec = bench.spec(1, None, **LONG)
    child = start_ranks(zygote, spec)
    seen: list[int] = []

    def kill_victim() -> None:
        seen.extend([child.pid, *list_rank_pids(child.pid)])
        os.kill(seen[("torchrun", "rank 0", "rank 1").index(victim)], signal.SIGKILL)

    recorder = Recorder(kill_victim)
    outcome = supervise_child(child, recorder, 0.0)
    assert outcome.ending == "died", outcome
    assert len(seen) == 3 and all(gone(pid) for pid in seen)
    again = bench.learn({**spec, "snapshot": str(recorder.snapshots[0])})
    assert again.digests == bench.learn_task(1, **LONG).digests


@pytest.mark.campaign
def test_a_job_on_two_ranks_ends_as_done_with_the_bits_of_one_process(
    zygote: ForkServer, bench: Bench, gone: Callable[[int], bool]
) -> None:
    recipe = {"method": "er", "shards": 2}
    spec = bench.spec(1, None, **recipe)
    child = start_ranks(zygote, spec)
    outcome = supervise_child(child, Recorder(lambda: None), 60.0)
    assert (outcome.ending, outcome.status) == ("done", 0)
    assert gone(child.pid)
    found = Learned(spec, [], Path(spec["out"]) / "result")
    assert found.digests == bench.learn_task(1, **recipe).digests


@pytest.mark.campaign
def test_all_ranks_stop_at_the_same_step(zygote: ForkServer, bench: Bench) -> None:
    spec = bench.spec(1, None, **LONG)
    child = start_ranks(zygote, spec)
    recorder = Recorder(child.request_stop)
    outcome = supervise_child(child, recorder, 0.0)
    assert (outcome.ending, outcome.status) == ("stopped", 0)
    again = bench.learn({**spec, "snapshot": str(recorder.snapshots[-1])})
    assert again.digests == bench.learn_task(1, **LONG).digests


@pytest.mark.campaign
def test_what_is_wrong_with_a_job_is_told_by_the_first_rank(
    zygote: ForkServer, bench: Bench
) -> None:
    bench.architecture, bench.size, bench.n = {"name": "resnet20"}, 8, 10
    child = start_ranks(zygote, bench.spec(1, None, shards=2))
    outcome = supervise_child(child, Recorder(lambda: None), 60.0)
    assert outcome.ending == "error" and "BatchNorm" in outcome.event.message, outcome


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"recipe": {}}, 1),
        ({"recipe": {"shards": 1}, "ranks": 4}, 1),
        ({"recipe": {"shards": 4}, "ranks": 2}, 2),
        ({"recipe": {"shards": 4}, "device": "cpu"}, 1),
        ({"recipe": {"shards": 4}, "device": "cuda:1"}, 1),
    ],
)
def test_a_job_takes_as_many_processes_as_devices_divide_its_shards(
    spec: dict[str, Any], expected: int
) -> None:
    assert ranks.choose_process_count_of_job(spec) == expected
