"""The statements for contributors are true: files that are named exist, and the hooks are what `make check`
runs.
"""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
DOCUMENTS = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


def read_make_commands(target: str) -> list[str]:
    """Return the commands of a target of the Makefile, as they run in the default environment."""
    (found,) = re.findall(rf"^{target}:.*\n((?:\t.+\n)+)", MAKEFILE, re.MULTILINE)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found.splitlines()]


def list_code_spans(document: str) -> list[str]:
    """Return the texts between single backticks."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", (ROOT / document).read_text())


def test_the_hooks_before_a_commit_are_what_make_check_runs() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == read_make_commands("check")
    assert all(hook["pass_filenames"] is False and hook["language"] == "system" for hook in hooks)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_is_named_exists(document: str) -> None:
    # A path of the service begins with a slash; `image/png` is a media type.
    no_files = ("/", "image/", "s3:", "gs:", "az:", "https:")
    paths = [
        name
        for name in list_code_spans(document)
        if (("/" in name and " " not in name) or name.endswith(".md"))
        and not name.startswith(no_files)
    ]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_target_of_make_that_is_named_exists() -> None:
    targets = {
        name.split()[1] for name in list_code_spans("CONTRIBUTING.md") if name.startswith("make ")
    }
    assert targets == {
        "test",
        "test-changed",
        "test-all",
        "test-slow",
        "test-campaign",
        "check",
        "docs",
        "demo",
        "serve",
    }
    assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in targets)


def test_every_module_that_a_command_runs_exists() -> None:
    commands = re.findall(r"python -m ([\w.]+)", (ROOT / "CONTRIBUTING.md").read_text())
    assert set(commands) == {
        "tests.before_after.record",
        "tests.before_after.compare",
        "tools.client_sync",
        "tools.client_types",
        "tools.command_line",
        "tools.house",
        "tools.release.notices",
        "tools.release.version",
        "tools.timm_weights",
        "tools.vendor",
        "tests.mutants",
        "tests.ui.pictures",
    }
    assert all(
        (ROOT / command.replace(".", "/")).with_suffix(".py").exists() for command in commands
    )
