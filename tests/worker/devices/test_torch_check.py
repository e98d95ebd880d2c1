"""Check of torch and torchvision: a broken pair is explained before anything is started."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import Unavailable
from core.settings import Settings
from worker import setup
from worker.devices.torch_check import (
    FIRST_START,
    check_torch_while_block_runs,
    has_torch_check_passed,
    main,
)

ROOT = Path(__file__).parents[3]
OPERATOR = "operator torchvision::nms does not exist"
PINS = re.findall(r'"(torch(?:vision)?==[\d.]+)"', (ROOT / "pyproject.toml").read_text())
COMMAND = f"{sys.executable} -m pip install --force-reinstall --no-deps {' '.join(PINS)}"
TORCH = """
class library:
    class Library:
        def __init__(self, *_): pass
        def define(self, *_): pass
"""
"""A stand-in that imports at once, with all that `core.learning.torchvision_import` needs."""


def write_fake_modules(folder: Path, **modules: str) -> str:
    """Write modules by their sources, and return the folder to find them in."""
    for name, source in modules.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source)
    return str(folder)


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ({"torch": TORCH, "torchvision": f"raise RuntimeError({OPERATOR!r})"}, f"torchvision says "
            f"“{OPERATOR}”"),
        ({"torch": TORCH, "torchvision": "import nothing_like_it"},
         "importing torchvision says “No module named 'nothing_like_it'”"),
        ({"torch": "raise OSError('libcudart.so.12: cannot open shared object file')"},
         "importing torch says “libcudart"),
    ],
    ids=["operator", "part", "library"],
)  # fmt: skip
def test_a_broken_pair_is_told_with_the_command_that_mends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, modules: dict[str, str], said: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", write_fake_modules(tmp_path / "path", **modules))
    with (
        pytest.raises(Unavailable) as refused,
        check_torch_while_block_runs(Settings(data_dir=tmp_path)),
    ):
        pass
    assert said in refused.value.detail and " do not work together: " in refused.value.detail
    assert f"\n    {COMMAND}\n" in refused.value.detail


@pytest.mark.slow
def test_a_service_with_a_broken_pair_starts_nothing_and_shows_no_key(tmp_path: Path) -> None:
    settings = {
        "PYTHONPATH": write_fake_modules(
            tmp_path / "path", torch=TORCH, torchvision=f"raise RuntimeError({OPERATOR!r})"
        ),
        "PERENNIAL_DATA_DIR": str(tmp_path / "data"),
        "PERENNIAL_PORT": "0",
    }
    command = [sys.executable, "-m", "worker.launcher"]
    environment = {**os.environ, **settings}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"torchvision says “{OPERATOR}”" in done.stderr and COMMAND in done.stderr
    assert "Traceback" not in done.stderr and "serves http" not in done.stderr
    assert not (
        tmp_path / "data" / "admin-key"
    ).exists()  # it would have been shown, and is shown only once


def replace_python(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the Python of the check by a shell script."""
    (folder / "program").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "program").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "program"))


def test_a_missing_library_is_told_as_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "worker.devices.torch_check._get_installed_package_version",
        lambda name: None if name == "torchvision" else "2.0",
    )
    replace_python(tmp_path, 'echo \'{"name": "torchvision", "error": "no"}\'; exit 1', monkeypatch)
    with (
        pytest.raises(Unavailable, match="torchvision is not installed for ") as caught,
        check_torch_while_block_runs(Settings(data_dir=tmp_path)),
    ):
        pass
    assert "--force-reinstall" not in str(caught.value)


def test_a_silent_end_of_the_imports_is_told_by_its_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace_python(tmp_path, "kill -SEGV $$", monkeypatch)
    with (
        pytest.raises(Unavailable, match="the import ended with status -11"),
        check_torch_while_block_runs(Settings(data_dir=tmp_path)),
    ):
        pass


def test_a_good_pair_is_tried_once_until_one_of_its_files_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace_python(tmp_path, "echo tried >> $PYTHONPATH/tries", monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = Settings(data_dir=tmp_path)

    def count_tries() -> int:
        with check_torch_while_block_runs(settings):
            pass
        return len((tmp_path / "tries").read_text().split())

    assert (count_tries(), count_tries()) == (1, 1)
    write_fake_modules(tmp_path, torchvision="")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    assert count_tries() == 2


def test_a_first_start_is_one_whose_pair_has_not_passed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace_python(tmp_path, "exit 0", monkeypatch)
    settings = Settings(data_dir=tmp_path)
    assert not has_torch_check_passed(settings)
    with check_torch_while_block_runs(settings):
        pass
    assert has_torch_check_passed(settings)


@pytest.mark.parametrize(
    ("checked", "said"), [(False, f"{FIRST_START}\n"), (True, "")], ids=["first", "later"]
)
def test_only_a_first_start_says_that_it_may_take_minutes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    checked: bool,
    said: str,
) -> None:
    said_before: list[str] = []

    def record_output_before(_settings: Settings) -> dict[str, str]:
        said_before.append(capsys.readouterr().err)
        return {}

    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(setup, "has_torch_check_passed", lambda _settings: checked)
    monkeypatch.setattr(setup, "prepare_service_data", record_output_before)
    assert setup.main() == 0
    assert said_before == [said]


def test_the_pair_that_is_installed_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(), capsys.readouterr().out) == (0, "")
