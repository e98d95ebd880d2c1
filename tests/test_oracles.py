"""The table of oracles names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| (?P<what>.+) \| (?P<tests>[^|]+) \|$")
NAMED = re.compile(r"`(?P<path>[\w/]+\.py)::(?P<name>\w+)(?:\[[^`]*\])?`")


def read_rows() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (what is checked, [(path, name)]) of every row; a cell of tests holds nothing else."""
    found = []
    for line in (TESTS / "ORACLES.md").read_text().splitlines():
        row = ROW.match(line)
        if row and row["what"] != "What is checked":
            named = [
                (test["path"], test["name"])
                for test in map(NAMED.fullmatch, split_cells(row["tests"]))
                if test
            ]
            found.append(
                (row["what"], named if len(named) == len(split_cells(row["tests"])) else [])
            )
    return found


def split_cells(tests: str) -> list[str]:
    return tests.split("<br>")


@cache
def list_run_functions(path: str) -> set[str]:
    """Return the functions of a file that pytest runs.
    These are its tests, or the checks that the conformance tests are made of.
    """
    text = (TESTS / path).read_text()
    if Path(path).name.startswith("test_"):
        return set(re.findall(r"^def (test_\w+)\(", text, re.MULTILINE))
    body = ast.parse(text).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    assigned = [node for node in body if isinstance(node, ast.Assign)]
    (checks,) = [node.value for node in assigned if ast.unparse(node.targets[0]) == "CHECKS"]
    return functions & {node.id for node in ast.walk(checks) if isinstance(node, ast.Name)}


def test_the_table_is_not_empty_and_every_row_names_tests() -> None:
    assert read_rows()
    assert [what for what, named in read_rows() if not named] == []


def test_every_named_test_exists() -> None:
    tests = sorted({test for _, named in read_rows() for test in named})
    assert [(path, name) for path, name in tests if name not in list_run_functions(path)] == []
