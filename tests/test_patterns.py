"""A pattern ends where the text ends: Python's `$` also matches before a last line break, so that
`prod\\n` would pass."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import StringConstraints, TypeAdapter, ValidationError

from core.ids import NAME_PATTERN, has_name_form, is_allowed_model_or_alias_name
from core.learning.catalogue import build_recipe_catalogue

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "api",
    "client",
    "core",
    "worker",
    "migrations",
    "tools",
    "deploy",
    "bench",
    "perennial_service",
)
OF_STARTS = {
    "_BLANK_START",
    "_BODY",
    "_DRIVE",
    "_IN_NAMES",
    "_ITEM",
    "_SCHEME_START",
    "_SELECTOR",
    "_UPLOAD_START",
}
"""Compiled patterns that are to match the start of a text, or a place in it."""
USES_RE = re.compile(r"\bre\.|\.match\(")
BY_PART = {"match", "search", "sub", "split", "findall", "finditer", "compile"}


def find_open_ends(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, what) of each use of `re` that may ignore a line break at the end of a text."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if node.func.attr == "match" and ast.unparse(node.func.value) not in {"re", *OF_STARTS}:
            yield node.lineno, f"{ast.unparse(node.func)}: use fullmatch, or name it in OF_STARTS"
        of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        if not of_re or node.func.attr not in BY_PART:
            continue
        pattern = node.args[0]
        texts = [part.value for part in ast.walk(pattern) if isinstance(part, ast.Constant)]
        flags = ast.unparse(ast.Module([ast.Expr(arg) for arg in node.args[1:]], []))
        if (
            any(isinstance(text, str) and "$" in text.replace(r"\$", "") for text in texts)
            and "MULTILINE" not in flags
        ):
            yield node.lineno, f"re.{node.func.attr} with `$`: use fullmatch, or \\Z"
        if node.func.attr in ("match", "search") and not texts:
            yield node.lineno, f"re.{node.func.attr} of a pattern made elsewhere: use fullmatch"


def test_no_pattern_of_ours_takes_a_line_break_at_the_end_for_the_end() -> None:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if not USES_RE.search(text):
                continue  # to parse all files takes seconds
            found += [
                f"{path.relative_to(ROOT)}:{line}: {what}"
                for line, what in find_open_ends(ast.parse(text))
            ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "_KEY.match(text)",
        "re.match(NAME, text)",
        're.compile(r"^a$")',
        're.search("a$", text)',
        're.sub(f"{x}$", "", text)',
    ],
)
def test_the_scan_finds_what_it_is_for(line: str) -> None:
    assert list(find_open_ends(ast.parse(line)))


def test_no_schema_of_a_recipe_has_a_pattern() -> None:
    """The JSON Schema library would look for one with `re.search`."""

    def yield_keys(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            yield from value
            for inner in value.values():
                yield from yield_keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from yield_keys(inner)

    assert "pattern" not in set(yield_keys(build_recipe_catalogue()))


def test_a_name_with_a_line_break_is_no_name() -> None:
    assert (
        is_allowed_model_or_alias_name("prod")
        and not is_allowed_model_or_alias_name("prod\n")
        and not has_name_form("prod\n")
    )


def test_a_pattern_of_a_schema_ends_at_the_end_of_the_text() -> None:
    name = TypeAdapter(Annotated[str, StringConstraints(pattern=NAME_PATTERN)])
    assert name.validate_python("prod") == "prod"
    with pytest.raises(ValidationError):
        name.validate_python("prod\n")
