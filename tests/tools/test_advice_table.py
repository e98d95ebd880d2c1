"""The table of warnings and advice: complete, as the code says it, and with a test for each that
can be followed.
"""

import ast
import re

import pytest

from api.pages.parts.wording import replace_requests_by_button_labels
from perennial.steps import find_requests_in_sentence
from perennial.words import replace_requests_by_commands
from tools import advice_table
from tools.advice_table import ENTRIES, ROOT, AdviceRow, find_advice_functions

ASKING = [pytest.param(one, id=one.code) for one in ENTRIES if one.says]


def test_it_is_what_the_entries_say() -> None:
    assert advice_table.DOCUMENT.read_text() == advice_table.render_advice_table(), (
        "run: python -m tools.advice_table"
    )


def test_each_function_that_asks_or_warns_has_an_entry() -> None:
    listed = {source for one in ENTRIES for source in one.sources}
    functions = find_advice_functions()
    assert functions, "its patterns find no function"
    assert functions - listed == set(), "add an entry to tools/advice_table.py"
    for source in listed:
        file, _, name = source.partition(":")
        assert f"def {name}(" in (ROOT / file).read_text(), source


def test_codes_are_single() -> None:
    codes = [one.code for one in ENTRIES]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("entry", ASKING)
def test_each_place_is_told_what_it_can_do(entry: AdviceRow) -> None:
    assert not re.search(r"perennial [a-z]|-o [a-z_]+=", entry.says), "the API names requests"
    typed, shown = (
        replace_requests_by_commands(entry.says),
        replace_requests_by_button_labels(entry.says),
    )
    assert not re.search(r"(GET|POST|PUT|PATCH|DELETE) /|\?[a-z_]+=", typed), typed
    assert not re.search(r"/v1/|\?[a-z_]+=|-o [a-z]", shown), shown


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda one: one.code)
def test_each_is_followed_by_a_test_or_says_why_not(entry: AdviceRow) -> None:
    file, _, name = entry.test.partition("::")
    if not name:
        assert (
            entry.test.startswith("not followed: ")
            if entry.says
            else entry.test == advice_table.TELLS
        )
        return
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_request_that_the_code_names_has_a_command() -> None:
    """Names of the path, which the code fills in, are X here; a body that it fills in is
    left away.
    """
    lost = []
    for path in (
        path for place in advice_table.PLACES for path in sorted((ROOT / place).rglob("*.py"))
    ):
        source = path.read_text()
        for text in find_strings(source) if "/v1" in source else ():
            for _, _, step in find_requests_in_sentence(text):
                if step.format_as_command() is None and step.path != "/v1/models":
                    lost.append(f"{path.relative_to(ROOT)}: {step}")
    assert lost == []


def find_strings(source: str) -> list[str]:
    """Return the strings of a module except docstrings, with X for what is filled in."""
    skipped = set()
    found = []
    for node in ast.walk(ast.parse(source)):  # a node before those inside it
        if isinstance(node, ast.Expr):
            skipped.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            found.append(
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "X"
                    for part in node.values
                )
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] if node not in skipped else []
    return found
