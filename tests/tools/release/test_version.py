"""Every place that names the version names the same one."""

import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from api.app import read_installed_service_version
from tools.release import version

ROOT = Path(__file__).parents[3]


def test_every_place_names_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for place in version.PLACES:
        found = place.find_versions_in_text((ROOT / place.file).read_text())
        assert found == {project["version"]}, place
    assert version.read_project_version() == project["version"]
    assert version.find_newest_changelog_version() == project["version"], (
        "a section of the changelog"
    )


def test_the_service_needs_the_client_of_its_own_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"perennial-client=={project['version']}" in project["dependencies"]


def test_the_command_line_and_the_api_report_the_version() -> None:
    command = [sys.executable, "-m", "perennial", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"perennial, version {version.read_project_version()}\n"
    assert read_installed_service_version() == version.read_project_version(), (
        "install it again: make .venv/.dev"
    )
    assert metadata.version("perennial-client") == version.read_project_version()


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that name the version."""
    for name in (*(place.file for place in version.PLACES), version.CHANGELOG):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(version, "ROOT", tmp_path)
    return tmp_path


def test_one_command_sets_the_version_everywhere(copy: Path) -> None:
    former, changelog = version.read_project_version(), copy / version.CHANGELOG
    text = changelog.read_text().replace("## Unreleased\n", "")
    changelog.write_text(text.replace(f"## {former}\n", f"## Unreleased\n\n## {former}\n"))
    version.write_version_to_all_files("7.8.9rc1")
    for place in version.PLACES:
        assert place.find_versions_in_text((copy / place.file).read_text()) == {"7.8.9rc1"}, place
    assert version.find_newest_changelog_version() == "7.8.9rc1"
    assert f"\n## {former}\n" in changelog.read_text()


@pytest.mark.parametrize(
    ("number", "reason"), [("7.8", "is not a version"), ("7.8.9", "has no section")]
)
def test_a_version_that_cannot_be_set_changes_nothing(copy: Path, number: str, reason: str) -> None:
    changelog = copy / version.CHANGELOG
    changelog.write_text(changelog.read_text().replace("## Unreleased\n", ""))
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match=reason):
        version.write_version_to_all_files(number)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
