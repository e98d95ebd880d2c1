import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from core.settings import Settings
from tests.worker.conftest import LIMIT_S, Clock, wait_within_limit
from tools import service
from worker import launcher as launchers
from worker.launcher import (
    API,
    LONGEST_PAUSE_S,
    STEADY_S,
    WORKER,
    ServiceLauncher,
    ServiceProcess,
    build_service_processes,
    find_free_port,
    wait_for_free_port,
)

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, signal, sys
sys.path.insert(0, {root!r})
from worker import launcher as launchers
from worker.launcher import API, WORKER, ServiceLauncher, ServiceProcess
launchers.API_GRACE_S = 60
processes = [
    ServiceProcess(
        name,
        [sys.executable, "-c", "import os, signal, sys, time\\n" + code, {folder!r}, name],
        dict(os.environ),
    )
    for name, code in ((API, {api!r}), (WORKER, {worker!r}))
]
launcher = ServiceLauncher(processes, 60.0)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, launcher.request_stop)
sys.exit(launcher.run_service())
"""
STARTED = "open(f'{sys.argv[1]}/{sys.argv[2]}', 'a').write(f'{os.getpid()}\\n')\n"
END = "lambda *_: (open(f'{sys.argv[1]}/ended', 'a').write(f'{sys.argv[2]}\\n'), sys.exit(0))"
STAY = f"signal.signal(15, {END})\n{STARTED}time.sleep(600)"
STUBBORN = f"signal.signal(15, lambda *_: None)\n{STARTED}while True: time.sleep(1)"
SENDING = ("httpcore2", "core.webhooks.guarded_http")
"""Modules that send to webhooks."""
Launch = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Return a function that runs a launcher over two small programs."""

    def launch_program(api: str = STAY, worker: str = STAY) -> "subprocess.Popen[bytes]":
        text = PROGRAM.format(root=str(ROOT), folder=str(tmp_path), api=api, worker=worker)
        return subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.PIPE)

    return launch_program


def wait_for_pids(folder: Path, name: str, count: int = 1) -> list[int]:
    """Return the process ids that a part has had, once there are `count`.

    Each process has its signal handlers.
    """
    path = folder / name
    has_started = wait_within_limit(
        lambda: path.exists() and len(path.read_text().split()) >= count
    )
    assert has_started, f"{name} did not start"
    return [int(line) for line in path.read_text().split()]


def test_a_signal_ends_the_api_first_then_the_worker(launch: Launch, tmp_path: Path) -> None:
    launcher = launch()
    found = [*wait_for_pids(tmp_path, "api"), *wait_for_pids(tmp_path, "worker")]
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 0
    assert (tmp_path / "ended").read_text().split() == [API, WORKER]
    assert not any(psutil.pid_exists(pid) for pid in found)


def test_a_process_that_dies_is_started_again(launch: Launch, tmp_path: Path) -> None:
    launcher = launch()
    os.kill(wait_for_pids(tmp_path, "worker")[0], signal.SIGKILL)
    first, second = wait_for_pids(tmp_path, "worker", 2)
    assert first != second
    assert len(wait_for_pids(tmp_path, "api")) == 1
    launcher.terminate()
    _, errors = launcher.communicate(timeout=LIMIT_S)
    assert b"The worker process ended with status -9" in errors
    assert launcher.returncode == 0


def test_a_process_that_always_dies_is_restarted_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launchers, "time", clock)
    part = ServiceProcess(API, ["false"], dict(os.environ))
    launcher = ServiceLauncher([part], 1.0)
    pauses = [0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    for starts, pause_s in enumerate(pauses, 1):
        launcher._start_or_schedule_restart(part)
        assert part.starts == starts and part.process is not None
        part.process.wait()
        launcher._start_or_schedule_restart(part)
        assert (
            f"api process ended with status 1; restarting in {pause_s:g} s."
            in capfd.readouterr().err
        )
        clock.now += pause_s - 0.1
        launcher._start_or_schedule_restart(part)
        assert part.starts == starts
        clock.now += 0.1
    launcher._start_or_schedule_restart(part)
    assert part.process is not None
    part.process.wait()
    clock.now += STEADY_S + 1
    launcher._start_or_schedule_restart(part)
    assert "restarting in 0.5 s." in capfd.readouterr().err


def test_a_second_signal_kills(launch: Launch, tmp_path: Path) -> None:
    launcher = launch(worker=STUBBORN)
    worker = wait_for_pids(tmp_path, "worker")[0]
    wait_for_pids(tmp_path, "api")
    launcher.send_signal(signal.SIGINT)
    assert wait_within_limit((tmp_path / "ended").exists)  # the first signal has been heard
    assert launcher.poll() is None
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 1
    assert not psutil.pid_exists(worker)


def test_a_killed_launcher_leaves_no_process(
    launch: Launch, tmp_path: Path, gone: Callable[[int], bool]
) -> None:
    launcher = launch()
    found = [*wait_for_pids(tmp_path, "api"), *wait_for_pids(tmp_path, "worker")]
    launcher.kill()
    launcher.communicate(timeout=LIMIT_S)
    assert all(gone(pid) for pid in found)


def test_the_worker_is_a_celery_worker_when_there_is_a_broker() -> None:
    told = {"host": "127.0.0.1", "data_dir": "/x", "embedded": False}
    api, worker = build_service_processes(told, 9)
    assert (api.name, worker.name) == (API, WORKER)
    assert "perennial_service.celery_app" in worker.command
    assert "solo" in worker.command
    _, worker = build_service_processes({**told, "embedded": True}, 9)
    assert worker.command[-1] == "worker.loop"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "light_of"),
    [
        ("worker.launcher", ("torch", "pydantic", "sqlalchemy")),
        ("worker.setup", ("torch",)),
        pytest.param("worker.loop, worker.celery_app", ("torch", *SENDING), marks=pytest.mark.slow),
    ],
)
def test_a_process_does_not_load_what_it_rarely_needs(
    modules: str, light_of: tuple[str, ...]
) -> None:
    assert list_loaded_modules(f"import {modules}", light_of) == "[]"


@pytest.mark.slow
def test_the_api_never_loads_the_learning_code_or_what_sends(tmp_path: Path) -> None:
    settings = f"Settings(data_dir=Path({str(tmp_path)!r}))"
    made = f"create_app({settings}).openapi()"
    program = (
        f"from pathlib import Path; from api.app import create_app; from core.settings "
        f"import Settings; {made}"
    )
    heavy = (
        "torch",
        "torchvision",
        "onnxruntime",
        "onnx",
        "celery",
        "core.learning",
        "core.execution",
        "core.publishing",
        "core.scheduling",
        "core.upkeep",
        "worker",
        "httpcore2",
    )
    assert list_loaded_modules(program, heavy) == "[]"


def list_loaded_modules(program: str, modules: tuple[str, ...]) -> str:
    """Return the names of those modules that a process has loaded after running this program."""
    program += f"; import sys; print([name for name in {modules} if name in sys.modules])"
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_free_port_can_be_bound() -> None:
    assert 0 < find_free_port("127.0.0.1") < 65536


def test_a_port_that_is_in_use_stops_the_start_with_what_to_do(
    capfd: pytest.CaptureFixture[str],
) -> None:
    port = service.find_free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert not wait_for_free_port("127.0.0.1", port, 0.1)
        assert f"PERENNIAL_PORT={port + 1} perennial serve" in capfd.readouterr().err
    assert wait_for_free_port("127.0.0.1", port, 0.1)


def test_a_busy_port_is_told_before_the_preparations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    def fail_to_prepare() -> None:
        told.extend(capfd.readouterr().err.splitlines())

    monkeypatch.setattr(launchers, "_try_to_run_setup_program", fail_to_prepare)
    monkeypatch.setattr(os, "umask", lambda _mask: 0)  # of this process
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", service.find_free_port())) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("PERENNIAL_PORT", str(port))
        assert launchers.main() == 1
    assert told == [
        f"Starting Perennial with its data in {tmp_path / 'data'} …",
        f"Port {port} is in use by another program. Preparing; then waiting for the port.",
    ]


def test_the_launcher_knows_the_default_address() -> None:
    defaults = {name: Settings.model_fields[name].default for name in ("host", "port")}
    assert defaults == {"host": launchers.DEFAULT_HOST, "port": launchers.DEFAULT_PORT}


def test_the_port_of_a_service_that_ends_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", service.find_free_port())) as other:
        stand_in = SimpleNamespace(monotonic=clock.monotonic, sleep=lambda _seconds: other.close())
        monkeypatch.setattr(launchers, "time", stand_in)
        assert wait_for_free_port("127.0.0.1", other.getsockname()[1], 10)
    assert "it is free in 10 s at most: waiting." in capfd.readouterr().err
