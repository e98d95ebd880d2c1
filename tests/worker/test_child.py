import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.protocol.job_event import DoneEvent, JobEvent, LogEvent, MetricEvent
from worker.child import Child, Zygote, ZygoteDied

Spec = Callable[..., Path]


def read_all(child: Child, limit_s: float = 10.0) -> list[JobEvent]:
    found, end = [], time.monotonic() + limit_s
    while not child.ended and time.monotonic() < end:
        found += child.events(0.1)
    return found


def test_events_arrive_in_order_and_the_exit_code_is_zero(zygote: Zygote, spec: Spec) -> None:
    events = [LogEvent(level="info", message=str(n)) for n in range(200)]
    child = zygote.spawn(spec(*(("emit", event.to_json()) for event in events)))
    assert read_all(child) == events
    assert child.finish() == 0


def test_an_event_of_a_megabyte_arrives_whole(zygote: Zygote, spec: Spec) -> None:
    event = MetricEvent(name="long", data="x" * (1 << 20))
    child = zygote.spawn(spec(("emit", event.to_json())))
    assert read_all(child) == [event]
    child.finish()


def test_lines_that_are_no_events_are_left_out(zygote: Zygote, spec: Spec) -> None:
    child = zygote.spawn(spec(("write", "hello\n[1]\n{}\n"), ("emit", {"event": "done", "path": "/r"})))
    assert read_all(child) == [DoneEvent(path="/r")]
    child.finish()


def test_a_child_that_raises_ends_with_a_code_of_its_own(zygote: Zygote, spec: Spec) -> None:
    child = zygote.spawn(spec(("raise", "boom")))
    read_all(child)
    assert child.finish() == 70


def test_a_killed_child_reports_its_signal(zygote: Zygote, spec: Spec) -> None:
    child = zygote.spawn(spec(("sleep", 60)))
    os.kill(child.pid, signal.SIGKILL)
    read_all(child)
    assert child.finish() == -signal.SIGKILL


def test_one_zygote_forks_children_one_after_the_other(zygote: Zygote, spec: Spec) -> None:
    pids = set()
    for _ in range(5):
        child = zygote.spawn(spec(("emit", {"event": "done", "path": "/r"})))
        read_all(child)
        assert child.finish() == 0
        pids.add(child.pid)
    assert len(pids) == 5
    assert zygote.alive()


def test_no_descriptor_is_left_open_after_many_children(zygote: Zygote, spec: Spec) -> None:
    def count() -> tuple[int, ...]:
        return tuple(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (os.getpid(), zygote.pid))

    zygote.wait_ready()
    before = count()
    for _ in range(10):
        child = zygote.spawn(spec(("emit", {"event": "done", "path": "/r"})))
        read_all(child)
        child.finish()
    assert count() == before


def test_a_child_exits_when_the_control_pipe_closes(
    zygote: Zygote, spec: Spec, gone: Callable[[int], bool]
) -> None:
    child = zygote.spawn(spec(("sleep", 60)))
    child.finish(timeout_s=0.0)
    assert gone(child.pid)


def test_a_dead_zygote_is_reported_and_its_child_still_heard(zygote: Zygote, spec: Spec) -> None:
    child = zygote.spawn(spec(("sleep", 0.3), ("emit", {"event": "done", "path": "/r"})))
    os.kill(zygote.pid, signal.SIGKILL)
    assert read_all(child) == [DoneEvent(path="/r")]
    assert child.finish() is None
    with pytest.raises(ZygoteDied):
        zygote.spawn(spec(("sleep", 1)))


def test_a_zygote_that_cannot_start_is_reported(spec: Spec) -> None:
    broken = Zygote((sys.executable, "-c", "raise SystemExit(1)"))
    try:
        with pytest.raises(ZygoteDied):
            broken.spawn(spec())
    finally:
        broken.close()


def test_no_process_outlives_a_killed_worker(
    fake_command: tuple[str, ...], spec: Spec, gone: Callable[[int], bool]
) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from worker.child import Zygote\n"
        "zygote = Zygote(sys.argv[2:])\n"
        "child = zygote.spawn(Path(sys.argv[1]))\n"
        "print(zygote.pid, child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", program, str(spec(("sleep", 60))), *fake_command],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    pids = [int(pid) for pid in worker.stdout.readline().split()]
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)
