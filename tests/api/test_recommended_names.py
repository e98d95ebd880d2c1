"""Every base, architecture, method and preset that a document or a sentence names is one that a
request gets.

Names are read from documents for people, pages, and sentences of the code, so that a new one is
checked too.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.learning.networks.backbones.timm_names import RECOMMENDED
from tests.docs.documents import ROOT, list_documents

PLACES = ("api", "client/perennial", "core", "worker")
BASE = re.compile(r"(?<![\w/.-])perennial/([a-z][a-z0-9]*(?:-[a-z0-9]+)+)")
TIMM = re.compile(r"(?<![\w./-])timm/([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)?)")
METHOD = re.compile(r'"method": (?:\{"name": )?"([^"]+)"')
PRESET = re.compile(r'"preset": "([^"]+)"')
ARCHITECTURE = re.compile(r'"architecture": (?:\{"name": )?"([^"]+)"|--architecture ([a-z]\S*)')
NAMING = re.compile(r'perennial/|timm/|"(?:method|preset)|architecture')
"""Text in every file in whose strings one of these patterns finds a name: extend them together."""
HISTORY = {"CHANGELOG.md"}
"""Tells of names that there were."""


@cache
def collect_texts() -> tuple[tuple[str, str], ...]:
    """Return the place and the text of documents, pages and strings of the code, docstrings
    included.
    """
    found = [(name, (ROOT / name).read_text()) for name in list_documents() if name not in HISTORY]
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".html", ".js") and "vendor" not in path.parts:
                found.append((name, path.read_text()))
            elif path.suffix == ".py":
                found.append((name, "\n".join(find_strings(path.read_text()))))
    return tuple(found)


def find_strings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)) if NAMING.search(source) else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def find_names(pattern: re.Pattern[str]) -> dict[str, str]:
    """Return each name that the pattern finds, with the first place where it stands."""
    found: dict[str, str] = {}
    for place, text in collect_texts():
        for one in pattern.finditer(text):
            name = next(group for group in one.groups() if group)
            if "{" not in name and "…" not in name and name != name.upper():
                found.setdefault(name.strip("`'\".,;:)"), place)
    return found


def read_first_column(document: str, heading: str) -> list[str]:
    """Return the names in the first column of the first table under a heading."""
    text = (ROOT / document).read_text().partition(heading)[2]
    rows = text.partition("| --- |")[2].partition("\n\n")[0]
    return [
        name for row in rows.split("\n")[1:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]


def create_numbered_model(client: TestClient, **fields: Any) -> Any:
    create_numbered_model.count = getattr(create_numbered_model, "count", 0) + 1  # type: ignore[attr-defined]
    given = {"name": f"m{create_numbered_model.count}", "scenario": "class", **fields}  # type: ignore[attr-defined]
    return client.post("/v1/models", json=given)


def list_refused_names(client: TestClient, names: dict[str, str], ask: str) -> list[str]:
    """Return the names that no model can be made with, each with its place and the error.

    Args:
        ask: the field as JSON, with %s for the name.
    """
    wrong = []
    for name, place in names.items():
        answer = create_numbered_model(client, **json.loads(ask % name))
        if answer.status_code != 201:
            wrong.append(f"{place}: {name}: {answer.json()['detail']}")
    return wrong


def test_bases_of_the_package(client: TestClient) -> None:
    found = find_names(BASE)
    assert {"resnet20-cifar100", "efficientnet-lite0"} <= found.keys()
    assert list_refused_names(client, found, '{"base": "perennial/%s"}') == []


def test_networks_of_timm(client: TestClient) -> None:
    found = find_names(TIMM)
    table = read_first_column("docs/reference/architectures.md", "## timm's recommended networks")
    assert table == list(RECOMMENDED) and set(table) <= found.keys() | set(table)
    found |= dict.fromkeys(table, "docs/reference/architectures.md")
    assert len(found) >= len(RECOMMENDED)
    assert list_refused_names(client, found, '{"architecture": "timm/%s"}') == []


def test_architectures(client: TestClient) -> None:
    known = {one["name"] for one in client.get("/v1/architectures").json()["items"]}
    table = read_first_column("docs/reference/architectures.md", "# Architectures")
    assert set(table) - {"perennial/resnet20-cifar100", "perennial/efficientnet-lite0"} >= {
        "mlp",
        "vit_b_16",
    }
    found = {
        name: place
        for name, place in find_names(ARCHITECTURE).items()
        if not name.startswith("timm/")
    }
    first = [name for name in table if "/" not in name]
    assert {name: place for name, place in found.items() if name not in known} == {}
    assert [name for name in first if name not in known] == []


@pytest.mark.parametrize(("pattern", "where"), [(METHOD, "methods"), (PRESET, "presets")])
def test_methods_and_presets(client: TestClient, pattern: re.Pattern[str], where: str) -> None:
    answer = client.get("/v1/methods").json()
    known = (
        {one["name"] for one in answer["items"]} if where == "methods" else set(answer["presets"])
    )
    found = find_names(pattern)
    assert found
    assert {name: place for name, place in found.items() if name not in known} == {}


def test_methods_of_the_tables(client: TestClient) -> None:
    known = {one["name"] for one in client.get("/v1/methods").json()["items"]}
    assert set(read_first_column("docs/reference/methods/README.md", "## All methods")) == known
