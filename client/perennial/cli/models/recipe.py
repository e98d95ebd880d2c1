"""Recipes and architectures formatted for people: one line each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perennial.cli.output import Cell
from perennial.shapes import convert_to_json

if TYPE_CHECKING:
    from perennial.types import ArchitectureChoice

NAMED = ("method", "optimizer")
"""Parts that have a name and values of their own."""


def build_recipe_rows(recipe: Any) -> Iterator[tuple[str, Cell]]:
    """Yield a recipe as one row, its method first in the text; no row if it is empty.

    Args:
        recipe: from a model, a job, a task or a manifest; None: there is none.
    """
    text_by_part = {
        name: _format_recipe_value(value, is_named=name in NAMED)
        for name, value in (convert_to_json(recipe) or {}).items()
    }
    method = text_by_part.pop("method", "")
    parts = [
        *([method] if method else []),
        *(f"{name} {text}" for name, text in text_by_part.items() if text),
    ]
    if parts:
        yield "recipe", "; ".join(parts)


def describe_architecture(architecture: ArchitectureChoice) -> str:
    """Describe a network architecture by its name and hyper-parameters.

    A library of networks, such as `timm`, has the name of the network as its hyper-parameter
    `model`; it comes first.
    """
    settings = dict(architecture.extra)
    network = _format_recipe_value(settings.pop("model", None), is_named=False)
    name = f"{network} ({architecture.name})" if network else architecture.name
    more = _format_recipe_value(settings, is_named=False)
    return f"{name}, {more}" if more else name


def _format_recipe_value(value: Any, *, is_named: bool) -> str:
    """Format a value of a recipe as text, without parts that have no value."""
    if not isinstance(value, dict):
        return _format_plain_value(value)
    parts = dict(value)
    first = [str(parts.pop("name"))] if is_named and parts.get("name") else []
    settings = (
        f"{name} {text}"
        for name, each in parts.items()
        if (text := _format_recipe_value(each, is_named=False))
    )
    return ", ".join([*first, *settings])


def _format_plain_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
