"""Code of `core` that is written twice: six lines in a row that are the same but for white space."""

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.loading import walk_statements

ROOT = Path(__file__).parents[1]
LINES = 6
"""Number of equal lines that make a duplicate."""
DEFENDED = {
    ("core/contract/figures.py", "core/contract/manifest.py"): (
        "The fields of a manifest are written in their order. Inherited ones would come first, "
        "before the format."
    ),
    ("core/contract/figures.py", "core/contract/responses/versions/manifest.py"): (
        "A stored document may lack fields that a response promises, such as `curve`."
    ),
    ("core/contract/gate.py", "core/contract/gate.py"): (
        "A request may leave limits out, a response has all of them. A typed dict cannot make "
        "inherited fields optional."
    ),
    ("core/contract/pretrained.py", "core/contract/pretrained.py"): (
        "Rows of a table of over a thousand weights stay plain. Only the row in use becomes an "
        "object."
    ),
    ("core/export/loading/onnx_run.py", "core/export/loading/onnx_run_2.py"): (
        "Each becomes the whole program in the README of a download, whose bytes must not change."
    ),
}
"""Pairs of files below `core` that may share lines, with the reason."""


def list_code_lines(text: str) -> list[tuple[int, str]]:
    """Return the number and text of each line of code.
    Imports, strings by themselves, comments and lone punctuation are left out.
    """
    skipped: set[int] = set()
    for node in walk_statements(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant(str())):
                skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    folded = ((number, " ".join(line.split())) for number, line in enumerate(text.split("\n"), 1))
    return [
        (number, line)
        for number, line in folded
        if number not in skipped and re.match(r"[^#]*\w", line)
    ]


def find_duplicates(folder: Path, paths: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Yield two files, in order, and the places in them, for each run of lines in both."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path in sorted(paths):
        code = list_code_lines(path.read_text())
        for start in range(len(code) - LINES + 1):
            run = code[start : start + LINES]
            name = path.relative_to(folder).as_posix()
            places[tuple(line for _, line in run)].append((name, run[0][0]))
    for found in places.values():
        for (one, line), (other, other_line) in itertools.combinations(found, 2):
            yield one, other, f"{one}:{line} ~ {other}:{other_line}"


def test_core_has_no_six_lines_twice_but_defended_ones() -> None:
    shared = ROOT / "client" / "perennial" / "reading_rules"
    files = itertools.chain((ROOT / "core").rglob("*.py"), shared.rglob("*.py"))
    duplicates = list(find_duplicates(ROOT, files))
    wrong = [where for one, other, where in duplicates if (one, other) not in DEFENDED]
    assert wrong == [], "write it once, or defend the pair in this file and docs/design/house.md"
    used = {(one, other) for one, other, _ in duplicates}
    assert used == set(DEFENDED), "a defended pair has become different: remove it"


def test_a_planted_pair_is_found_despite_indentation_and_comments(tmp_path: Path) -> None:
    lines = [
        "a = read(b)",
        "for c in a:",
        "    c.add(1)",
        "    c.sort()",
        "d = sum(a)",
        "e = d + 1",
    ]
    (tmp_path / "one.py").write_text("\n".join(["import os", *lines]))
    other = ["def f():", '    """Text."""']
    other += [f"    {line}" for line in [*lines[:3], "# why", "", *lines[3:]]]
    (tmp_path / "other.py").write_text("\n".join(other))
    found = [where for _, _, where in find_duplicates(tmp_path, tmp_path.glob("*.py"))]
    assert found == ["one.py:2 ~ other.py:3"]


def test_five_equal_lines_are_no_duplicate(tmp_path: Path) -> None:
    lines = [f"a{i} = {i}" for i in range(LINES - 1)]
    for name in ("one.py", "other.py"):
        (tmp_path / name).write_text("\n".join([f"b = '{name}'", *lines]))
    assert list(find_duplicates(tmp_path, tmp_path.glob("*.py"))) == []
