"""The lock of a data directory: one service holds it, and a second one learns which."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.worker.conftest import LIMIT_S
from worker import data_folder_lock
from worker.data_folder_lock import DataDirectoryInUse, lock_data_directory

HOLDER = """
import sys
from pathlib import Path
from worker.data_folder_lock import lock_data_directory
with lock_data_directory(Path(sys.argv[1])) as lock:
    if sys.argv[2].startswith("http"):
        lock.store_service_address(sys.argv[2])
    if sys.argv[2] == "ending":
        lock.mark_stopping(30)
    print("held", flush=True)
    sys.stdin.read()
"""


def hold_folder(folder: Path, state: str = "") -> "subprocess.Popen[str]":
    """Start a process that holds a folder until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize(
    ("state", "does"),
    [("", "runs"), ("http://127.0.0.1:8123", "serves http://127.0.0.1:8123")],
    ids=["starting", "serving"],
)
def test_a_second_service_is_refused_with_the_address_and_the_process_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, does: str
) -> None:
    monkeypatch.setattr(data_folder_lock, "PATIENCE_S", 0.0)
    with hold_folder(tmp_path, state) as first:
        with pytest.raises(DataDirectoryInUse) as refused, lock_data_directory(tmp_path):
            pass
        first.kill()
    holder = f"Perennial already {does} with the data directory {tmp_path} (process {first.pid})."
    assert str(refused.value).startswith(f"{holder} Use that one.")
    assert str(refused.value).endswith(f"stop the first: kill {first.pid}.")


def test_a_lock_of_an_earlier_release_names_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_folder_lock, "PATIENCE_S", 0.0)
    with (tmp_path / data_folder_lock.NAME).open("wb") as file:
        file.write(b"4321".ljust(32))
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with (
            pytest.raises(DataDirectoryInUse, match=r"already runs with .* \(process 4321\)"),
            lock_data_directory(tmp_path),
        ):
            pass


def test_a_killed_service_leaves_no_address(tmp_path: Path) -> None:
    with hold_folder(tmp_path, "http://127.0.0.1:8123") as first:
        first.kill()
    with lock_data_directory(tmp_path) as lock:
        assert lock is not None, "what a killed service held is free"
        assert (tmp_path / data_folder_lock.NAME).read_text().split() == [str(os.getpid())]


def test_a_service_that_stops_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_folder_lock, "PATIENCE_S", 0.0)
    with hold_folder(tmp_path, "ending") as first:
        stand_in = SimpleNamespace(
            monotonic=time.monotonic, sleep=lambda _seconds: first.communicate(timeout=LIMIT_S)
        )
        monkeypatch.setattr(data_folder_lock, "time", stand_in)
        with lock_data_directory(tmp_path) as lock:
            assert lock is not None and first.returncode == 0
    assert (tmp_path / data_folder_lock.NAME).read_text().split() == [str(os.getpid())]


def test_a_service_that_hangs_while_it_stops_is_announced_and_then_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0

    def advance_clock(seconds: float) -> None:
        nonlocal now
        now += seconds

    with lock_data_directory(tmp_path) as first:
        assert first is not None
        first.mark_stopping(29.5)
        monkeypatch.setattr(
            data_folder_lock, "time", SimpleNamespace(monotonic=lambda: now, sleep=advance_clock)
        )
        with pytest.raises(DataDirectoryInUse) as refused, lock_data_directory(tmp_path):
            pass
    assert 90 < now < 90 + 2 * data_folder_lock.LOOK_S
    pid = os.getpid()
    assert (
        capsys.readouterr().err
        == f"Waiting for Perennial (process {pid}) to stop using {tmp_path} …\n"
    )
    assert str(refused.value) == (
        f"Perennial (process {pid}) is stopping, but still uses the data directory {tmp_path} "
        f"after 90 seconds. Wait until it has ended, or end it now: kill -9 {pid}. Then start "
        f"again."
    )


def test_a_damaged_lock_is_still_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder_lock, "PATIENCE_S", 0.0)
    with lock_data_directory(tmp_path):
        (tmp_path / data_folder_lock.NAME).write_bytes(
            b"\xff\xfe\x80".ljust(data_folder_lock.LENGTH)
        )
        with pytest.raises(DataDirectoryInUse, match="already runs"), lock_data_directory(tmp_path):
            pass


def test_a_file_system_without_locks_is_served_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_os_error(*_: object) -> None:
        raise OSError("no locks")

    monkeypatch.setattr(data_folder_lock.fcntl, "flock", raise_os_error)
    with lock_data_directory(tmp_path) as lock:
        assert lock is None
