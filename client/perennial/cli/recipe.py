"""Recipes formatted for people: one line for each part with a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perennial.cli.output import Cell
from perennial.shapes import as_json

NAMED = ("method", "optimizer")
"""Parts that have a name and values of their own."""


def recipe_rows(recipe: Any) -> Iterator[tuple[str, Cell]]:
    """Yield a recipe as names and values, named as in a request: `method`, `epochs` …

    Args:
        recipe: from a model, a job, a task or a manifest; None: there is none.
    """
    for name, value in (as_json(recipe) or {}).items():
        text = _said(value, is_named=name in NAMED)
        if text:
            yield f"recipe.{name}", text


def _said(value: Any, *, is_named: bool) -> str:
    """Return a value as text, without parts that have no value."""
    if not isinstance(value, dict):
        return _plain(value)
    parts = dict(value)
    first = [str(parts.pop("name"))] if is_named and parts.get("name") else []
    settings = (f"{name} {text}" for name, each in parts.items() if (text := _said(each, is_named=False)))
    return ", ".join([*first, *settings])


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
