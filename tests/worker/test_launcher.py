import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from worker.launcher import API, WORKER, free_port, parts, wait_for

ROOT = Path(__file__).parents[2]
PROGRAM = """
import signal, sys
sys.path.insert(0, {root!r})
from worker.launcher import API, WORKER, Launcher, Part
import os
quiet = "import signal,sys,time,os\\nopen(sys.argv[1],'a').write(str(os.getpid())+chr(10))\\n"
api = Part(API, [sys.executable, "-c", quiet + {api!r}, {folder!r} + "/api"], dict(os.environ))
work = Part(WORKER, [sys.executable, "-c", quiet + {worker!r}, {folder!r} + "/worker"], dict(os.environ))
launcher = Launcher([api, work], {grace})
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, launcher.ask_to_stop)
sys.exit(launcher.run())
"""
OBEY = (
    "signal.signal(15, lambda *_: (open(sys.argv[1] + '.end', 'w').write(str(time.time())), sys.exit(0)))\n"
)
STAY = OBEY + "time.sleep(60)"
STUBBORN = "signal.signal(15, lambda *_: None)\nwhile True: time.sleep(1)"


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Runs a launcher over two small programs."""

    def run(api: str = STAY, worker: str = STAY, grace: float = 5.0) -> subprocess.Popen[bytes]:
        text = PROGRAM.format(root=str(ROOT), folder=str(tmp_path), api=api, worker=worker, grace=grace)
        return subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], stderr=subprocess.PIPE)

    return run


def pids(folder: Path, name: str, count: int = 1, seconds: float = 10.0) -> list[int]:
    """The process ids that a part has had, once there are `count`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        path = folder / name
        found = [int(line) for line in path.read_text().split()] if path.exists() else []
        if len(found) >= count:
            time.sleep(0.1)  # its signal handler is set
            return found
        time.sleep(0.02)
    raise AssertionError(f"{name} did not start {count} times")


def test_a_signal_ends_the_api_first_then_the_worker(
    launch: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    launcher = launch()
    api, worker = pids(tmp_path, "api")[0], pids(tmp_path, "worker")[0]
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=10)
    assert launcher.returncode == 0
    assert float((tmp_path / "api.end").read_text()) <= float((tmp_path / "worker.end").read_text())
    assert not psutil.pid_exists(api)
    assert not psutil.pid_exists(worker)


def test_a_part_that_dies_is_started_again(
    launch: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    launcher = launch()
    os.kill(pids(tmp_path, "worker")[0], signal.SIGKILL)
    first, second = pids(tmp_path, "worker", 2)
    assert first != second
    assert len(pids(tmp_path, "api")) == 1
    launcher.terminate()
    _, errors = launcher.communicate(timeout=10)
    assert b"The worker process ended with status -9" in errors
    assert launcher.returncode == 0


@pytest.mark.slow
def test_a_part_that_always_dies_is_restarted_with_growing_pauses(
    launch: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    launcher = launch(api="sys.exit(3)")
    begin = time.monotonic()
    pids(tmp_path, "api", 3)
    assert time.monotonic() - begin >= 1.5
    launcher.terminate()
    _, errors = launcher.communicate(timeout=10)
    assert b"restarting in 0.5 s" in errors
    assert b"restarting in 1 s" in errors


def test_a_second_signal_kills(launch: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    launcher = launch(worker=STUBBORN, grace=60.0)
    worker = pids(tmp_path, "worker")[0]
    pids(tmp_path, "api")
    launcher.send_signal(signal.SIGINT)
    end = time.monotonic() + 10
    while not (tmp_path / "api.end").exists() and time.monotonic() < end:
        time.sleep(0.02)  # the first signal has been heard
    assert launcher.poll() is None
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=10)
    assert launcher.returncode == 1
    assert not psutil.pid_exists(worker)


def test_a_killed_launcher_leaves_no_process(
    launch: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, gone: Callable[[int], bool]
) -> None:
    launcher = launch()
    found = [*pids(tmp_path, "api"), *pids(tmp_path, "worker")]
    launcher.kill()
    launcher.communicate(timeout=10)
    assert all(gone(pid) for pid in found)


def test_the_worker_is_a_celery_worker_when_there_is_a_broker() -> None:
    told = {"host": "127.0.0.1", "data_dir": "/x", "embedded": False}
    api, worker = parts(told, 9)
    assert (api.name, worker.name) == (API, WORKER)
    assert "worker.celery_app" in worker.command
    assert "solo" in worker.command
    _, worker = parts({**told, "embedded": True}, 9)
    assert worker.command[-1] == "worker.loop"


def test_the_launcher_is_light() -> None:
    program = "import sys, worker.launcher; print([m for m in ('torch', 'pydantic', 'sqlalchemy') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_worker_does_not_import_torch() -> None:
    program = "import sys, worker.loop, worker.celery_app; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_free_port_can_be_bound() -> None:
    assert 0 < free_port("127.0.0.1") < 65536


def test_a_port_that_is_in_use_stops_the_start_with_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert not wait_for("127.0.0.1", port, 0.3)
        assert f"PERENNIAL_PORT={port + 1} perennial serve" in capfd.readouterr().err
    assert wait_for("127.0.0.1", port, 0.3)


def test_the_port_of_a_service_that_ends_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Timer(0.3, other.close).start()
        assert wait_for("127.0.0.1", other.getsockname()[1], 10)
