import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.contract.jobs.job_event import DoneEvent, JobEvent, LogEvent, MetricEvent
from tests.worker.conftest import LIMIT_S
from worker.attempts.child import MALLOC, ForkServer, ForkServerDied, JobProcess

Spec = Callable[..., Path]


def read_all_events(child: JobProcess) -> list[JobEvent]:
    found, end = [], time.monotonic() + LIMIT_S
    while not child.ended and time.monotonic() < end:
        found += child.read_child_events(0.1)
    return found


def test_events_arrive_in_order_and_the_exit_code_is_zero(zygote: ForkServer, spec: Spec) -> None:
    events = [LogEvent(level="info", message=str(n)) for n in range(200)]
    child = zygote.fork_child(spec(*(("emit", event.to_json()) for event in events)))
    assert read_all_events(child) == events
    assert child.close_and_wait() == 0


def test_an_event_of_a_megabyte_arrives_whole(zygote: ForkServer, spec: Spec) -> None:
    event = MetricEvent(name="long", data="x" * (1 << 20))
    child = zygote.fork_child(spec(("emit", event.to_json())))
    assert read_all_events(child) == [event]
    child.close_and_wait()


def test_lines_that_are_no_events_are_left_out(zygote: ForkServer, spec: Spec) -> None:
    child = zygote.fork_child(
        spec(("write", "hello\n[1]\n{}\n"), ("emit", {"event": "done", "path": "/r"}))
    )
    assert read_all_events(child) == [DoneEvent(path="/r")]
    child.close_and_wait()


@pytest.mark.parametrize(
    ("script", "code"), [(("raise", "boom"), 70), (("die", int(signal.SIGKILL)), -signal.SIGKILL)]
)
def test_a_child_that_raises_or_is_killed_reports_how_it_ended(
    zygote: ForkServer, spec: Spec, script: tuple[str, object], code: int
) -> None:
    child = zygote.fork_child(spec(script))
    read_all_events(child)
    assert child.close_and_wait() == code


def test_a_zygote_begins_with_what_libraries_read_at_their_start(zygote: ForkServer) -> None:
    zygote.wait_until_ready()
    environment = dict(
        line.split("=", 1)
        for line in Path(f"/proc/{zygote.pid}/environ").read_text().split("\0")
        if "=" in line
    )
    assert environment.items() >= {**MALLOC, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}.items()


def test_one_zygote_forks_children_one_after_the_other_and_leaves_no_descriptor_open(
    zygote: ForkServer, spec: Spec
) -> None:
    def count_descriptors() -> tuple[int, ...]:
        return tuple(
            len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (os.getpid(), zygote.pid)
        )

    zygote.wait_until_ready()
    before, pids = count_descriptors(), set()
    for _ in range(10):
        child = zygote.fork_child(spec(("emit", {"event": "done", "path": "/r"})))
        read_all_events(child)
        assert child.close_and_wait() == 0
        pids.add(child.pid)
    assert len(pids) == 10 and zygote.is_alive()
    assert count_descriptors() == before


def test_a_child_exits_when_the_control_pipe_closes(
    zygote: ForkServer, spec: Spec, gone: Callable[[int], bool]
) -> None:
    child = zygote.fork_child(spec(("sleep", 600)))
    child.close_and_wait(timeout_s=0.0)
    assert gone(child.pid)


def test_a_dead_zygote_is_reported_and_its_child_still_heard(
    zygote: ForkServer, spec: Spec, tmp_path: Path, gone: Callable[[int], bool]
) -> None:
    child = zygote.fork_child(
        spec(("await", str(tmp_path / "go")), ("emit", {"event": "done", "path": "/r"}))
    )
    os.kill(zygote.pid, signal.SIGKILL)
    assert gone(zygote.pid)
    (tmp_path / "go").touch()
    assert read_all_events(child) == [DoneEvent(path="/r")]
    assert child.close_and_wait() is None
    with pytest.raises(ForkServerDied):
        zygote.fork_child(spec(("sleep", 1)))


def test_a_zygote_that_cannot_start_is_reported(spec: Spec) -> None:
    broken = ForkServer((sys.executable, "-c", "raise SystemExit(1)"))
    try:
        with pytest.raises(ForkServerDied):
            broken.fork_child(spec())
    finally:
        broken.end_fork_server()


def test_no_process_outlives_a_killed_worker(
    fake_command: tuple[str, ...], spec: Spec, gone: Callable[[int], bool]
) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from worker.attempts.child import ForkServer\n"
        "zygote = ForkServer(sys.argv[2:])\n"
        "child = zygote.fork_child(Path(sys.argv[1]))\n"
        "print(zygote.pid, child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(spec(("sleep", 600))), *fake_command]
    worker = subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    pids = [int(pid) for pid in worker.stdout.readline().split()]
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_a_system_without_process_descriptors_ends_a_child_by_its_number(
    zygote: ForkServer, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    child = zygote.fork_child(spec(("sleep", LIMIT_S)))
    child.kill_process()
    read_all_events(child)
    assert child.close_and_wait() == -signal.SIGKILL
