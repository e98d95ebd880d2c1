"""Requests of tests wait longer than the HTTP library does by default."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
REQUEST = re.compile(r"\bhttpx2\.(get|post|put|patch|delete|head|request|stream)\(")


def find_calls_without_timeout(source: str) -> list[int]:
    """Return the lines of requests that end after the library's five seconds."""
    if not REQUEST.search(source):
        return []
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        call.lineno
        for call in calls
        if REQUEST.fullmatch(f"{ast.unparse(call.func)}(")
        and not {"timeout", None} & {keyword.arg for keyword in call.keywords}
    ]


def test_each_request_of_a_test_has_a_limit_of_its_own() -> None:
    found = {
        f"{path.relative_to(TESTS)}:{line}"
        for path in TESTS.rglob("*.py")
        for line in find_calls_without_timeout(path.read_text())
    }
    assert not found, "pass timeout=60: a busy machine may need more than five seconds"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import httpx2\nhttpx2.get(url)", [2]),
        ("httpx2.get(url, timeout=60)", []),
        ("httpx2.request(method, url, **options)", []),
        ("client.get(url)", []),
    ],
)
def test_the_scan_finds_requests_without_a_limit(source: str, lines: list[int]) -> None:
    assert find_calls_without_timeout(source) == lines
