"""A broken pair of torch and torchvision is told in words, before anything is started."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.settings import Settings
from worker import torch_check

pytestmark = pytest.mark.share(4, together=True)

ROOT = Path(__file__).parents[2]
OPERATOR = "operator torchvision::nms does not exist"

Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts the service with stand-ins for torch and torchvision, by their sources."""

    def run(program: str = "worker.launcher", **modules: str) -> "subprocess.CompletedProcess[str]":
        for name, source in modules.items():
            (tmp_path / "path" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "path" / name / "__init__.py").write_text(source)
        settings = {
            "PYTHONPATH": str(tmp_path / "path"),
            "PERENNIAL_DATA_DIR": str(tmp_path / "data"),
            "PERENNIAL_PORT": "0",
        }
        return subprocess.run(
            [sys.executable, "-m", program],
            cwd=ROOT,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ({"torchvision": f"raise RuntimeError({OPERATOR!r})"}, f"importing torchvision says “{OPERATOR}”"),
        ({"torchvision": "import nothing_like_it"}, "importing torchvision says “No module named 'nothing_like_it'”"),
        (
            {"torch": "raise OSError('libcudart.so.12: cannot open shared object file')"},
            "importing torch says “libcudart",
        ),
    ],
    ids=["operator", "part", "library"],
)  # fmt: skip
def test_a_broken_pair_is_told_with_the_command_that_mends_it(
    start: Start, tmp_path: Path, modules: dict[str, str], said: str
) -> None:
    done = start(**modules)
    assert done.returncode == 1
    assert said in done.stderr and " do not work together: " in done.stderr
    command = f"{sys.executable} -m pip install -c {ROOT}/constraints.txt --force-reinstall --no-deps torch torchvision"
    assert f"\n    {command}\n" in done.stderr
    assert "Traceback" not in done.stderr and "serves http" not in done.stderr
    assert not (tmp_path / "data" / "admin-key").exists()  # it would have been shown, and is shown only once


def test_a_missing_library_is_told_as_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch_check, "_version", lambda name: None if name == "torchvision" else "2.0")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "false"))
    (tmp_path / "false").write_text('#!/bin/sh\necho \'{"name": "torchvision", "error": "no"}\'; exit 1\n')
    (tmp_path / "false").chmod(0o755)
    with (
        pytest.raises(Exception, match="torchvision is not installed for ") as caught,
        torch_check.torch_checked(Settings(data_dir=tmp_path)),
    ):
        pass
    assert "--force-reinstall" not in str(caught.value)


def test_the_pair_that_is_installed_is_good_and_tried_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path)
    with torch_check.torch_checked(settings):
        pass

    def never(*_: object, **__: object) -> None:
        raise AssertionError("tried again")

    monkeypatch.setattr(subprocess, "Popen", never)
    began = time.monotonic()
    with torch_check.torch_checked(settings):
        pass
    assert time.monotonic() - began < 1
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    with pytest.raises(AssertionError, match="tried again"), torch_check.torch_checked(settings):
        pass


def test_a_silent_end_of_the_imports_is_told_by_its_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "crash").write_text("#!/bin/sh\nkill -SEGV $$\n")
    (tmp_path / "crash").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "crash"))
    with (
        pytest.raises(Exception, match="the import ended with status -11"),
        torch_check.torch_checked(Settings(data_dir=tmp_path)),
    ):
        pass


def test_the_preparation_itself_does_not_import_torch() -> None:
    program = "import sys, worker.setup; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
