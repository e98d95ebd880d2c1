"""The commands that the service adds to `perennial`: named as the package says, and each does what
it says.
"""

import json
import os
import subprocess
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from core.packaged import imagenet_base
from perennial.cli.main import COMMANDS
from tests.own_commands import NAMED, make_environment
from tools import commands, doctor
from tools.service import link_shared_test_catalogue
from worker.devices.device_check import build_cpu_device_report


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    link_shared_test_catalogue(folder)
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(folder))
    return folder


def run_command(command: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, standalone_mode=False)


def test_every_command_that_the_package_names_is_one() -> None:
    for name, target in NAMED.items():
        module, _, attribute = target.partition(":")
        assert isinstance(getattr(import_module(module), attribute), click.Command), name
    assert not NAMED.keys() & COMMANDS.keys(), "a name of the service would hide one of the client"


@pytest.mark.slow
def test_perennial_lists_and_runs_what_an_installed_service_adds(tmp_path: Path) -> None:
    own, command = make_environment(tmp_path / "own"), [str(tmp_path / "own" / "bin" / "perennial")]
    shown = subprocess.run(
        [*command, "--help"], env=own, capture_output=True, text=True, check=True
    )
    assert "Commands of the service on this machine" in shown.stdout
    assert all(f"  {name} " in shown.stdout for name in NAMED)
    done = subprocess.run(
        [*command, "backup", str(tmp_path)], env=own, capture_output=True, text=True
    )
    assert done.returncode == 2, "the folder is not empty"


def test_tables_are_made_and_doctor_finds_them(data_dir: Path) -> None:
    before = run_command(commands.doctor)
    assert before.return_value == 1
    assert "problem  database" in before.output
    assert run_command(commands.migrate).return_value == 0
    after = run_command(commands.doctor)
    assert after.return_value == 0, after.output
    assert [line[:2] for line in after.output.splitlines()] == ["ok"] * len(doctor.LOOKS)


def test_doctor_says_when_the_base_for_photos_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_command(commands.migrate)
    monkeypatch.setenv("PERENNIAL_DEFAULT_BASE", imagenet_base.NAME)
    assert (
        "ok       base for photos: perennial/efficientnet-lite0"
        in run_command(commands.doctor).output
    )
    monkeypatch.setattr(
        imagenet_base, "explain_missing_imagenet_base", lambda: "the package is not installed"
    )
    without = run_command(commands.doctor)
    assert without.return_value == 1
    assert (
        "problem  base for photos: the package is not installed; new models start from"
        in without.output
    )


@pytest.mark.slow
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_doctor_names_the_device_and_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setenv("PERENNIAL_DEVICE", device)
    output = run_command(commands.doctor).output
    if device == "auto":
        assert "ok       device: cpu, threads of a job: " in output
    else:
        assert "problem  device: PERENNIAL_DEVICE=cuda: no GPU can be used: torch " in output
        assert "is a CPU build. Install a CUDA build" in output


@pytest.mark.parametrize(
    ("asked", "probe", "line"),
    [
        (
            "cuda",
            {
                "device": "cuda",
                "gpus": 2,
                "name": "NVIDIA H100",
                "free_bytes": 60 << 30,
                "total_bytes": 80 << 30,
            },
            "ok       device: NVIDIA H100, 2 visible, 60.0 of 80.0 GiB free, driver 580.1, torch "
            "2.13.0+cu130",
        ),
        (
            "auto",
            {"problem": "torch 2.13.0+cpu is a CPU build."},
            "problem  device: PERENNIAL_DEVICE=auto: the NVIDIA driver (580.1) is there, but no "
            "GPU can be used: torch 2.13.0+cpu is a CPU build.",
        ),
        (
            "cuda",
            {"problem": "torch is built for sm_75, and NVIDIA X has compute capability 5.0."},
            "problem  device: PERENNIAL_DEVICE=cuda: the NVIDIA driver (580.1) is there, but no "
            "GPU can be used: torch is built for sm_75, and NVIDIA X has compute capability 5.0.",
        ),
    ],
    ids=["usable", "CPU build", "other kernels"],
)
def test_doctor_names_driver_gpu_and_memory_as_the_check_reports_them(
    monkeypatch: pytest.MonkeyPatch, asked: str, probe: dict[str, object], line: str
) -> None:
    monkeypatch.setenv("PERENNIAL_DEVICE", asked)
    monkeypatch.setattr("core.machine.can_open_cuda", lambda: True)
    monkeypatch.setattr(doctor, "read_driver_version", lambda: "580.1")
    report = {**build_cpu_device_report(None), "torch": "2.13.0+cu130", **probe}
    monkeypatch.setattr(doctor, "check_device_in_subprocess", lambda device: report)
    assert line in run_command(commands.doctor).output.splitlines()


def test_check_sweep_backup_and_restore_pass_on_what_was_said(
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_command(commands.migrate)
    assert run_command(commands.check, "--json", "--verify").return_value == 0
    assert run_command(commands.sweep, "--dry-run", "--grace-hours", "2").return_value == 0
    assert run_command(commands.backup, str(tmp_path / "copy")).return_value == 0
    assert json.loads((tmp_path / "copy" / "backup.json").read_text())["objects"] == 0
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path / "restored"))
    assert run_command(commands.restore, str(tmp_path / "copy")).return_value == 0


def test_check_of_a_path_names_the_command_that_looks_at_a_batch() -> None:
    outcome = CliRunner().invoke(commands.check, ["my week.zip", "--verify"])
    assert outcome.exit_code == 2
    assert "perennial submit MODEL 'my week.zip' --check" in outcome.output


def test_serve_says_its_options_as_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}
    monkeypatch.setattr("worker.launcher.main", lambda: seen.update(os.environ) or 0)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert (
        run_command(commands.serve, "--port", "8123", "--data-dir", "/srv/perennial").return_value
        == 0
    )
    assert (seen["PERENNIAL_PORT"], seen["PERENNIAL_DATA_DIR"]) == ("8123", "/srv/perennial")
