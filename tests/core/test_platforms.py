"""A refusal on platforms where the service does not run, before it imports what they lack."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core import platforms

ROOT = Path(__file__).parents[2]
ON_WINDOWS = """
import importlib, json, sys
import asyncio, click, fastapi, perennial.cli.main, perennial_service.command_line as commands
sys.platform = "win32"
for name in ("fcntl", "grp", "pwd", "resource", "termios", "uvloop"):
    sys.modules[name] = None  # an import of it raises ImportError

said = {}
for name, *arguments in (
    ("serve",), ("serve", "--demo"), ("worker",), ("migrate",), ("sweep",), ("check",), ("doctor",),
    ("backup", "folder"), ("restore", "folder"), ("compare-methods", "."),
):
    command = getattr(commands, name.replace("-", "_"))
    try:
        command.main(arguments, standalone_mode=False)
    except BaseException as error:
        said[" ".join((name, *arguments))] = f"{type(error).__name__}: {error}"
for name in ("api.app", "worker.launcher", "worker.celery_app", "worker.setup", "core.settings",
             "perennial_service.asgi", "perennial_service.celery_app"):
    try:
        importlib.import_module(name)
    except BaseException as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
sys.argv[1:] = ["--help"]  # of the client, which also lists the service's commands
perennial.cli.main.main()
"""


def test_on_windows_each_program_of_the_service_names_what_to_use_instead(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    said, *client = done.stdout.splitlines()
    assert any(line.split()[:1] == ["submit"] for line in client)
    refusals = json.loads(said)
    assert len(refusals) == 17
    assert set(refusals.values()) == {f"SystemExit: {platforms.REFUSED}"}
    assert platforms.REFUSED.count(". ") == 0


@pytest.mark.parametrize(("system", "is_safe"), [("linux", True), ("darwin", False)])
def test_linux_and_macos_pass(system: str, is_safe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    platforms.require_supported_platform()
    assert platforms.can_platform_fork_with_torch() == is_safe
