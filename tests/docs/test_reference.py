"""The reference says what the code says: settings, methods, recipes, routes and programs, all and
no others.
"""

import json
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import tables
from documents import ROOT
from pydantic_core import PydanticUndefined

from api.app import create_app
from core.recipe.resolve import resolve_recipe
from core.settings import Settings
from tests.learning_catalogue import copy_catalogue

REFERENCE = ROOT / "docs" / "reference"
METHODS = REFERENCE / "methods"
CATALOGUE = copy_catalogue()
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
IN_WORDS = {
    "data_dir": "`./perennial-data`",
    "database_url": "SQLite in the data directory",
    "store_url": "a folder in the data directory",
    "threads": "(CPUs − 1) ÷ workers of the host",
    "job_memory_bytes": "¾ of the machine's memory",
}
"""Defaults that are made at the start, and what the page says of them."""


def parse_cell(cell: str) -> Any:
    """Return the value that a cell of settings.md shows."""
    if cell == "none":
        return None
    if cell.startswith("`"):
        return cell.strip("`")
    amount, _, unit = cell.partition(" ")
    return float(amount.replace(",", "")) * UNITS.get(unit, 1)


def test_every_setting_has_a_row_with_its_default() -> None:
    rows = re.findall(
        r"^\| `PERENNIAL_(\w+)` \| (.*?) \|", (REFERENCE / "settings.md").read_text(), re.MULTILINE
    )
    assert sorted(name.lower() for name, _ in rows) == sorted(Settings.model_fields)
    shown = {name.lower(): cell for name, cell in rows}
    assert {name: shown.pop(name) for name in IN_WORDS} == IN_WORDS
    for name, cell in shown.items():
        default = Settings.model_fields[name].default
        assert default is not PydanticUndefined
        default = default.get_secret_value() if hasattr(default, "get_secret_value") else default
        assert parse_cell(cell) == (None if default == "" else default), name


def find_method_pages() -> dict[str, Path]:
    """Return each method with the page that has its hyper-parameters."""
    heading = re.compile(r"^## Hyper-parameters of `(\S+)`$", re.MULTILINE)
    found = [
        (name, page) for page in METHODS.glob("*.md") for name in heading.findall(page.read_text())
    ]
    assert len(found) == len(dict(found))
    return dict(found)


def test_every_method_has_its_page_and_no_page_has_another() -> None:
    assert set(find_method_pages()) == set(CATALOGUE["methods"])


@pytest.mark.parametrize("name", sorted(CATALOGUE["methods"]))
def test_every_hyper_parameter_has_a_row_with_default_and_range(name: str) -> None:
    page = find_method_pages()[name].read_text()
    section = page.split(f"## Hyper-parameters of `{name}`\n")[1].split("\n## ")[0]
    entry = CATALOGUE["methods"][name]
    rows_of_page = tables.parse_table_rows(section)
    rows_of_code = tables.build_expected_rows(entry["schema"], entry["defaults"])
    assert rows_of_page == rows_of_code, (
        f"left: docs/reference/methods/{find_method_pages()[name].name}"
    )


def test_the_list_of_methods_says_where_each_works_and_where_it_is_weak() -> None:
    rows = re.findall(
        r"^\| \[`(\S+)`\]\((\S+)\) \| (.*?) \| .*? \| .*? \| (.*?) ?\|$",
        (METHODS / "README.md").read_text(),
        re.MULTILINE,
    )
    listed = {
        name: (re.findall(r"`(\w+)`", works), set(re.findall(r"`(\w+)`", weak)))
        for name, _, works, weak in rows
    }
    assert listed == {n: (m["scenarios"], set(m["weak"])) for n, m in CATALOGUE["methods"].items()}
    assert {name: page for name, page, _, _ in rows} == {
        name: page.name for name, page in find_method_pages().items()
    }


@pytest.mark.parametrize(
    "page", sorted(set(find_method_pages().values())), ids=lambda page: page.name
)
def test_the_recipe_of_a_method_can_be_sent(page: Path) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
    recipe = json.loads(example)
    method = recipe["method"] if isinstance(recipe["method"], str) else recipe["method"]["name"]
    assert find_method_pages()[method] == page
    scenario = CATALOGUE["methods"][method]["scenarios"][0]
    assert resolve_recipe(CATALOGUE, scenario, recipe).recipe["method"]["name"] == method


def test_every_field_of_a_recipe_has_a_row_with_default_and_range() -> None:
    entry = CATALOGUE["recipe"]
    parts, defaults = entry["schema"]["$defs"], entry["defaults"]
    assert tables.parse_table_rows(
        (REFERENCE / "recipe.md").read_text().split("## Presets")[0]
    ) == [
        *tables.build_expected_rows(entry["schema"], defaults),
        *tables.build_expected_rows(parts["HeadRecipe"], defaults["head"], "head."),
        *tables.build_expected_rows(parts["OptimizerRecipe"], defaults["optimizer"], "optimizer."),
        *tables.build_expected_rows(parts["OlorRecipe"], entry["olor"], "optimizer.olor."),
        *tables.build_expected_rows(parts["MergeRecipe"], entry["merge"], "merge."),
        *tables.build_expected_rows(parts["RebalanceRecipe"], entry["rebalance"], "rebalance."),
        *tables.build_expected_rows(parts["ResourcesRecipe"], defaults["resources"], "resources."),
    ]


def test_every_preset_is_listed() -> None:
    table = (REFERENCE / "recipe.md").read_text().split("## Presets")[1]
    listed = {
        name
        for line in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", line)
    }
    assert listed == set(CATALOGUE["presets"])


def test_every_route_is_listed_with_the_scope_that_it_needs(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path))
    needed = {}
    for route in app.routes:
        if not getattr(route, "include_in_schema", False):
            continue
        actor = get_type_hints(route.endpoint, include_extras=True).get("actor")
        scope = "none" if actor is None else actor.__metadata__[0].dependency.scope
        needed |= {f"{method} {route.path}": scope for method in route.methods}
    rows = re.findall(
        r"^\| `([A-Z]+ /\S*)` \| (\w+) \|", (REFERENCE / "api.md").read_text(), re.MULTILINE
    )
    assert dict(rows) == needed
    assert len(rows) == len(needed)


def test_every_architecture_is_listed_and_those_of_timm_that_are_recommended() -> None:
    page = (ROOT / "docs" / "reference" / "architectures.md").read_text()
    entries = CATALOGUE["architectures"]
    before, _, recommended = page.partition("## timm's")
    assert [name for name in entries if f"`{name}`" not in before] == []
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", recommended, re.MULTILINE))
    assert rows == entries["timm"]["recommended"]


def test_every_program_of_bench_and_every_plan_is_listed() -> None:
    programs = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for path in (ROOT / "bench").rglob("*.py")
        if 'if __name__ == "__main__":' in path.read_text()
        and not path.name.startswith("sleeping_")
    }
    listed = re.findall(r"`(bench\.[\w.]+)", (ROOT / "docs" / "benchmarks.md").read_text())
    assert sorted(listed) == sorted(programs)
    compare = (ROOT / "docs" / "howto" / "compare-methods.md").read_text()
    plans = (ROOT / "bench" / "experiment" / "plans").glob("*.toml")
    assert [plan.stem for plan in plans if f"`{plan.stem}`" not in compare] == []
