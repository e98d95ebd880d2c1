"""The lock of a data directory: one service holds it, and a second one is told which."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.worker.conftest import LIMIT_S
from worker import one_service
from worker.one_service import DataInUse, held

HOLDER = """
import sys
from pathlib import Path
from worker.one_service import held
with held(Path(sys.argv[1])) as lock:
    if sys.argv[2] == "ending":
        lock.end()
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(folder: Path, state: str = "") -> "subprocess.Popen[str]":
    """Start a process that holds a folder until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_service_is_refused_with_the_process_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_service, "PATIENCE_S", 0.0)
    with hold(tmp_path) as first:
        with (
            pytest.raises(DataInUse, match=rf"in use by another service, process {first.pid}\. Stop it"),
            held(tmp_path),
        ):
            pass
        first.kill()
    with held(tmp_path) as lock:
        assert lock is not None, "what a killed service held is free"


def test_a_service_that_stops_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_service, "PATIENCE_S", 0.0)
    with hold(tmp_path, "ending") as first:
        stand_in = SimpleNamespace(
            monotonic=time.monotonic, sleep=lambda _seconds: first.communicate(timeout=LIMIT_S)
        )
        monkeypatch.setattr(one_service, "time", stand_in)
        with held(tmp_path) as lock:
            assert lock is not None and first.returncode == 0
    assert (tmp_path / one_service.NAME).read_text().split() == [str(os.getpid())]


def test_a_file_system_without_locks_is_served_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no locks")

    monkeypatch.setattr(one_service.fcntl, "flock", fail)
    with held(tmp_path) as lock:
        assert lock is None
