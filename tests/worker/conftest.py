"""A zygote whose children run a scripted stand-in for the learning job, so that tests need no torch."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from worker.child import Zygote

FAKE = '''
"""A stand-in job: does what the lines of its spec say, one after the other."""
import json, os, signal, sys, threading, time
from pathlib import Path
import socket

sys.path.insert(0, {root!r})
from worker.zygote import serve


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
            end = time.monotonic() + value
            while time.monotonic() < end:
                if heard:
                    byte = heard.pop(0)
                    if byte == "a":
                        emit({{"event": "anytime", "path": "/nowhere"}})
                        continue
                    emit({{"event": "snapshot", "path": "/nowhere", "stage": 0, "epoch": 0, "step": 1}})
                    if byte == "p":
                        emit({{"event": "stopped"}})
                        return 0
                time.sleep(0.01)
    return 0


serve(socket.socket(fileno=int(sys.argv[1])), job)
'''


@pytest.fixture
def fake_command(tmp_path: Path) -> tuple[str, ...]:
    """How to start a zygote with the stand-in job."""
    program = tmp_path / "fake_zygote.py"
    program.write_text(FAKE.format(root=str(Path(__file__).parents[2])))
    return (sys.executable, str(program))


@pytest.fixture
def zygote(fake_command: tuple[str, ...]) -> Iterator[Zygote]:
    """A running zygote with the stand-in job; closed at the end."""
    running = Zygote(fake_command)
    yield running
    running.close()


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., Path]:
    """Writes a stand-in job's script: `spec(("emit", {...}), ("sleep", 1.0))`."""

    def write(*lines: tuple[str, object]) -> Path:
        import json

        path = tmp_path / f"spec-{time.monotonic_ns()}.json"
        path.write_text(json.dumps({"do": lines}))
        return path

    return write


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """Whether a process ends within three seconds (a zombie counts as ended)."""

    def wait(pid: int) -> bool:
        for _ in range(300):
            try:
                if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
                os.kill(pid, 0)
            except (ProcessLookupError, FileNotFoundError):
                return True
            time.sleep(0.01)
        return False

    return wait
