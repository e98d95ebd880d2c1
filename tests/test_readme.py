"""What the README says of methods and presets is what there is, and it stays short."""

import re
from pathlib import Path

from core.learning.catalogue import PRESETS
from core.learning.methods.registry import METHODS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def rows() -> dict[str, str]:
    """Name → the scenarios in the last column, for each row of the table of methods."""
    table = README.split("| method | keeps between tasks | take it when | weak for |")[1].split(
        "\n\n"
    )[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return {name: weak for names, _, _, weak in cells for name in re.findall(r"`([^`]+)`", names)}


def test_the_table_of_methods_lists_every_method_and_where_it_is_weak() -> None:
    said = {name: set(re.findall(r"`([^`]+)`", weak)) for name, weak in rows().items()}
    assert said == {name: set(method.scenario_warnings) for name, method in METHODS.items()}


def test_every_preset_is_named() -> None:
    assert all(f"`{name}`" in README for name in PRESETS)


def test_it_is_read_in_one_sitting() -> None:
    assert len(README.splitlines()) <= 200
