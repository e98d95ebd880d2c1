"""The version of a release: everywhere the same, and set by one command.

    python -m tools.release.version [VERSION]

Without VERSION it prints the one in use. With it, every place of `PLACES` gets it, and the section
"Unreleased" of the changelog becomes that of the version. The place that counts is `version` in
pyproject.toml; a test compares the others with it.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMBER = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"


@dataclass(frozen=True)
class ProjectVersionPlace:
    """A file that contains the project's version after words that a pattern matches."""

    file: str
    before: str

    def find_versions_in_text(self, text: str) -> set[str]:
        """Find the project's versions in the text of a file."""
        return set(re.findall(f"{self.before}({NUMBER})", text, re.MULTILINE))

    def replace_versions_in_text(self, text: str, version: str) -> str:
        """Replace the project's version in the text of a file."""
        return re.sub(f"({self.before}){NUMBER}", rf"\g<1>{version}", text, flags=re.MULTILINE)


PLACES = (
    ProjectVersionPlace("pyproject.toml", r'^version = "'),
    ProjectVersionPlace("pyproject.toml", r'"perennial-client=='),
    ProjectVersionPlace("client/perennial/__init__.py", r'^__version__ = "'),
    ProjectVersionPlace("docker-compose.yml", r"image: perennial:"),
    ProjectVersionPlace("client/README.md", r"perennial_client-"),
    ProjectVersionPlace("docs/howto/install.md", r"perennial_(?:service|client)-"),
    ProjectVersionPlace("docs/howto/train-in-ci.md", r"perennial_client-"),
    ProjectVersionPlace("docs/howto/submit-what-you-have.md", r"perennial_client-"),
    ProjectVersionPlace("docs/howto/compare-methods.md", r"perennial_service-"),
)
CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## Unreleased\n"


def read_project_version() -> str:
    """Read the project's present version."""
    (version,) = PLACES[0].find_versions_in_text((ROOT / PLACES[0].file).read_text())
    return version


def find_newest_changelog_version() -> str | None:
    """Return the newest version that has a section in the changelog, or None."""
    match = re.search(f"^## ({NUMBER})$", (ROOT / CHANGELOG).read_text(), re.MULTILINE)
    return None if match is None else match[1]


def write_version_to_all_files(version: str) -> None:
    """Write a new version into every file that contains the project's version.

    Raises:
        SystemExit: it is no version, or the changelog has nothing to release.
    """
    if not re.fullmatch(NUMBER, version):
        raise SystemExit(f"{version} is not a version. Versions are like 0.2.0 or 0.2.0rc1.")
    changelog = (ROOT / CHANGELOG).read_text()
    if UNRELEASED not in changelog:
        raise SystemExit(
            f"{CHANGELOG} has no section “Unreleased”. Write one that says what changes for users."
        )
    (ROOT / CHANGELOG).write_text(changelog.replace(UNRELEASED, f"## {version}\n", 1))
    for version_place in PLACES:
        text = (ROOT / version_place.file).read_text()
        (ROOT / version_place.file).write_text(
            version_place.replace_versions_in_text(text, version)
        )


def main() -> None:
    """Print the project's version, or set a new one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="?", metavar="VERSION")
    version = parser.parse_args().version
    if version is not None:
        write_version_to_all_files(version)
    print(read_project_version())


if __name__ == "__main__":
    main()
