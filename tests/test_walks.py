"""The walks through the code, file by file: every file that they name is there, and is one that
they can say so of.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WALKS = sorted((ROOT / "docs" / "design").glob("walk-*.md"))


def list_named_files(walk: Path) -> list[str]:
    """Return the files that a walk names."""
    return re.findall(r"`([\w/.-]+/[\w.-]+\.\w+)`", walk.read_text())


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.stem)
def test_every_file_on_a_walk_is_there(walk: Path) -> None:
    assert len(list_named_files(walk)) > 10
    assert [name for name in list_named_files(walk) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.stem)
def test_every_file_on_a_walk_says_what_it_is_for(walk: Path) -> None:
    modules = [name for name in list_named_files(walk) if name.endswith(".py")]
    assert [
        name for name in modules if not ast.get_docstring(ast.parse((ROOT / name).read_text()))
    ] == []


@pytest.mark.parametrize(
    ("folder", "walk"),
    [
        ("api/predict", "image"),
        ("core/predictions/helper", "image"),
        ("api/uploads", "upload"),
        ("api/pages", "page"),
        ("api/pages/parts", "page"),
    ],
)
def test_no_file_of_a_room_is_left_out_of_its_walk(folder: str, walk: str) -> None:
    there = {f"{folder}/{path.name}" for path in (ROOT / folder).glob("*.py")} - {
        f"{folder}/__init__.py"
    }
    assert there - set(list_named_files(ROOT / "docs" / "design" / f"walk-{walk}.md")) == set()
