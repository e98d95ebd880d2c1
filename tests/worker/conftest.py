"""Fixtures: a clock that only tests advance, and a zygote with a scripted stand-in job.

The children of the zygote run the stand-in. The tests therefore need no torch.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from worker import reaper
from worker.attempts import heartbeat, supervisor
from worker.attempts.child import ForkServer

LIMIT_S = 60.0
"""Time limit for expected events: generous, as the machine may be busy."""
FAKE = '''
"""A stand-in job: does what the lines of its spec say, one after the other."""
import json, os, signal, sys, threading, time
from pathlib import Path
import socket

sys.path.insert(0, {root!r})
from worker.attempts.zygote import fork_jobs_on_request


def job(spec, out_fd, control_fd):
    script = json.loads(Path(spec).read_text())
    heard = []

    def listen():
        while True:
            byte = os.read(control_fd, 1)
            if not byte:
                os._exit(3)
            heard.append(byte.decode())

    threading.Thread(target=listen, daemon=True).start()

    def emit(event):
        os.write(out_fd, (json.dumps(event) + "\\n").encode())

    for line in script["do"]:
        what, value = line
        if what == "emit":
            emit(value)
        elif what == "sleep":
            time.sleep(value)
        elif what == "await":  # until the file is there
            while not Path(value).exists():
                time.sleep(0.01)
        elif what == "take":  # so many bytes, and keep them
            try:
                heard.append(bytearray(b"x") * value)
            except MemoryError:
                emit({{"event": "error", "kind": "memory", "message": "MemoryError: refused"}})
                return 1
        elif what == "die":
            os.kill(os.getpid(), value)
        elif what == "raise":
            raise RuntimeError(value)
        elif what == "write":
            os.write(out_fd, value.encode())
        elif what == "obey":  # answer control bytes until told to stop
            while True:
                if heard:
                    emit({{"event": "snapshot", "path": "/nowhere", "stage": 0, "epoch": 0, "step": 1}})
                    if heard.pop(0) == "p":
                        emit({{"event": "stopped"}})
                        return 0
                time.sleep(0.01)
    return 0


fork_jobs_on_request(socket.socket(fileno=int(sys.argv[1])), job)
'''


@dataclass
class Clock:
    """A stand-in for the module `time`, which only the test advances."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of heartbeat, reaper and supervisor."""
    made = Clock()
    for module in (heartbeat, reaper, supervisor):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def fake_command(tmp_path: Path) -> tuple[str, ...]:
    """Return the command that starts a zygote with the stand-in job."""
    program = tmp_path / "fake_zygote.py"
    program.write_text(FAKE.format(root=str(Path(__file__).parents[2])))
    return (sys.executable, str(program))


@pytest.fixture
def zygote(fake_command: tuple[str, ...]) -> Iterator[ForkServer]:
    """Run a zygote with the stand-in job; it is closed at the end."""
    running = ForkServer(fake_command)
    yield running
    running.end_fork_server()


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a script: `spec(("emit", {...}), ("sleep", 1.0))`.

    The stand-in job runs this script.
    """

    def write_spec(*lines: tuple[str, object]) -> Path:
        path = tmp_path / f"spec-{time.monotonic_ns()}.json"
        path.write_text(json.dumps({"do": lines}))
        return path

    return write_spec


def wait_within_limit(condition: Callable[[], object]) -> bool:
    """Wait for a condition, and return whether it came true."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """Return a function that waits for the end of a process (a zombie counts as ended)."""

    def is_gone(pid: int) -> bool:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        return False

    return lambda pid: wait_within_limit(lambda: is_gone(pid))
