"""A service that cannot start, in the words of the demo and of the programs that start one."""

import os
import sys
from pathlib import Path

import pytest

from tools import demo, service
from worker import data_folder_lock

LAUNCHER = "import sys; sys.exit('The disk is full.')"


def test_a_service_that_ends_is_reported_without_the_output_of_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "code" / "worker").mkdir(parents=True)
    (tmp_path / "code" / "worker" / "__init__.py").touch()
    (tmp_path / "code" / "worker" / "launcher.py").write_text(LAUNCHER)
    data = tmp_path / "data"
    data.mkdir()
    (data / "service.log").write_text("Another service is in the way.\n")
    with (
        pytest.raises(service.ServiceNotReady) as refused,
        service.run_temporary_service(data, code=tmp_path / "code"),
    ):
        pass
    assert str(refused.value).endswith("The end of its log:\nThe disk is full.\n")


def test_the_demo_names_the_service_that_uses_its_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(data_folder_lock, "PATIENCE_S", 0.0)
    monkeypatch.setattr(sys, "argv", ["demo"])
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path))
    with data_folder_lock.lock_data_directory(tmp_path) as lock:
        assert lock is not None
        lock.store_service_address("http://127.0.0.1:8123")
        assert demo.main() == 1
    assert capsys.readouterr().out == (
        f"Perennial already serves http://127.0.0.1:8123 with the data directory {tmp_path} "
        f"(process {os.getpid()}). Stop it (Ctrl-C in its terminal, or kill {os.getpid()}), or "
        "give the demo a directory of its own: PERENNIAL_DATA_DIR=demo-data make demo\n"
    )
