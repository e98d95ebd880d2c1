"""What commands print: tables on a terminal, tab-separated lines elsewhere, JSON where it is asked for.

Results go to standard output. Progress, warnings and errors go to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from perennial.shapes import as_json

if TYPE_CHECKING:
    from rich.console import Console

NOTHING = "–"
"""A cell that has no value."""
WIDTH = 80
"""Columns of a terminal that does not say."""
Cell = str | int | float | bool | None


def is_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty()


def complain(text: str) -> None:
    """A sentence on standard error."""
    print(folded(text, sys.stderr), file=sys.stderr)


def say(text: str) -> None:
    """A sentence on standard output."""
    print(folded(text, sys.stdout))


def folded(text: str, stream: TextIO) -> str:
    """Lines for a terminal, broken between words; commands stay on one line, so that they can be copied."""
    if not stream.isatty():
        return text
    return "\n".join(_fold(line, "", stream) for line in text.split("\n"))


def _fold(text: str, hanging: str, stream: TextIO) -> str:
    rest = text.lstrip()
    if not rest or rest.startswith("perennial "):
        return text
    indent = text[: len(text) - len(rest)]
    return textwrap.fill(
        rest,
        max(40, _columns_of(stream)),
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def document(value: Any) -> None:
    """One JSON document."""
    print(json.dumps(as_json(value), ensure_ascii=False, indent=2 if is_terminal() else None))


def line(value: Any) -> None:
    """One of several JSON documents, a line each."""
    print(json.dumps(as_json(value), ensure_ascii=False, separators=(",", ":")), flush=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], empty: str) -> None:
    """Rows under headings; without a terminal, tab-separated and without headings.

    Args:
        empty: what a person is told where there are none.
    """
    if not is_terminal():
        for row in rows:
            print("\t".join(_plain(cell) for cell in row))
        return
    cells = [[shown(cell) for cell in row] for row in rows]
    if not cells:
        complain(empty)
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    found = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        is_number = all(_is_number(row[number]) for row in cells)
        found.add_column(
            column, justify="right" if is_number else "left", overflow="fold", no_wrap=column == "job"
        )
    for each in cells:
        found.add_row(*(Text(cell) for cell in each))
    console().print(found)


def fields(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Names and values, one a line; what has none is left out on a terminal."""
    each = list(pairs)
    if not is_terminal():
        for name, value in each:
            print(f"{name}\t{_plain(value)}")
        return
    width = max((len(name) for name, _ in each), default=0)
    for name, value in each:
        if value is not None:
            print(_fold(f"{name.ljust(width)}  {shown(value)}", " " * (width + 2), sys.stdout))


def console() -> Console:
    """Standard output for rich: as wide as the terminal; without colour where NO_COLOR is set."""
    from rich.console import Console

    return Console(width=_columns_of(sys.stdout))


def _columns_of(stream: TextIO) -> int:
    """How wide a terminal is; COLUMNS says otherwise."""
    text = os.environ.get("COLUMNS", "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError):  # no terminal behind it
        return WIDTH


def _is_number(cell: str) -> bool:
    return cell == NOTHING or cell.lstrip("+-").replace(".", "").replace(",", "").isdigit()


def shown(value: Cell) -> str:
    """A cell for a person."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value)


def _plain(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(str(value).split())


def size(count: int | None) -> str:
    """Bytes for a person, such as 12.3 MB."""
    if count is None:
        return "–"
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def when_short(text: str | None) -> str | None:
    """A time of this year, UTC, for a table: 11-23 14:35."""
    return None if text is None else f"{text[5:10]} {text[11:16]}"


def when(text: str | None) -> str | None:
    """A time in short: 2026-11-23 14:35 UTC."""
    return None if text is None else f"{text[:10]} {text[11:16]} UTC"
