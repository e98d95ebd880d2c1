"""What commands print: tables on a terminal, tab-separated lines elsewhere, JSON where it is asked for.

Results go to standard output. Progress, warnings and errors go to standard error. All of it passes `_write`, so no
value of the service reaches a terminal unseen; a test fails for a command that prints in another way.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

import click

from perennial.errors import ConfigError, PerennialError
from perennial.guard import json_text
from perennial.shapes import as_json
from perennial.text import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

NOTHING = "–"
"""A cell that has no value."""
WIDTH = 80
"""Columns of a terminal that does not say."""
LONGEST_NAME = 32
"""Characters of a first column that is not broken: ids are no longer."""
_UNBROKEN = "\x00"
"""Stands for a space at which a line is not broken; no printable text has it."""
Cell = str | int | float | bool | None


def is_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty()


def complain(text: str) -> None:
    """A sentence on standard error."""
    _write(folded(text, sys.stderr), sys.stderr)


def say(text: str) -> None:
    """A sentence on standard output."""
    _write(folded(text, sys.stdout), sys.stdout)


def confirm(question: str) -> None:
    """Ask a person.

    Raises:
        PerennialError: the answer is no.
        ConfigError: there is none.
    """
    with _asked("Nothing was done: nobody answered. Say --yes where nobody can be asked."):
        if not click.confirm(one_line(question), err=True):
            raise PerennialError("Nothing was done.")


def ask(question: str, missing: str, *, default: str | None = None, is_secret: bool = False) -> str:
    """Ask a person for a text.

    Args:
        missing: what is told where no answer comes.
        is_secret: it is not shown while it is typed.

    Raises:
        ConfigError: standard input has ended.
    """
    with _asked(missing):
        return str(click.prompt(one_line(question), default=default, hide_input=is_secret, err=True))


@contextmanager
def _asked(missing: str) -> Iterator[None]:
    """Tell the end of standard input from Ctrl-C, which click makes the same."""
    try:
        yield
    except click.Abort as stopped:
        complain("")  # the question's line has no end
        if isinstance(stopped.__context__, EOFError):
            raise ConfigError(missing) from None
        raise


def _write(text: str, stream: TextIO) -> None:
    """Print text without the controls that it may hold; where a stream cannot say a letter, with its code."""
    text, encoding = printable(text), stream.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def folded(text: str, stream: TextIO) -> str:
    """Lines for a terminal, broken between words; commands stay on one line, so that they can be copied."""
    text = printable(text)
    if not stream.isatty():
        return text
    return "\n".join(_fold(line, "", stream) for line in text.split("\n"))


def _fold(text: str, hanging: str, stream: TextIO) -> str:
    rest = text.lstrip()
    if not rest or rest.startswith("perennial "):
        return text
    indent, width = text[: len(text) - len(rest)], max(40, _columns_of(stream))
    before, colon, typed = rest.rpartition(": perennial ")
    if colon and len(text) > width:  # a command stays whole, so it gets a line of its own
        return f"{_fold(f'{indent}{before}:', hanging, stream)}\n{indent}  perennial {typed}"
    whole = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", _UNBROKEN), rest)
    return textwrap.fill(
        whole,
        width,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(_UNBROKEN, " ")


def document(value: Any) -> None:
    """One JSON document."""
    _write_json(value, 2 if is_terminal() else None, None)


def line(value: Any) -> None:
    """One of several JSON documents, a line each."""
    _write_json(value, None, (",", ":"))


def _write_json(value: Any, indent: int | None, separators: tuple[str, str] | None) -> None:
    text = json.dumps(as_json(value), ensure_ascii=False, indent=indent, separators=separators)
    _json_sink.get()(json_text(text))


def _print(text: str) -> None:
    _write(text, sys.stdout)


_json_sink: ContextVar[Callable[[str], None]] = ContextVar("json_sink", default=_print)
"""Takes every JSON document that a command answers."""


@contextmanager
def json_to(sink: Callable[[str], None]) -> Iterator[None]:
    """Send JSON elsewhere than to standard output."""
    token = _json_sink.set(sink)
    try:
        yield
    finally:
        _json_sink.reset(token)


def write_lines(lines: Iterable[str]) -> None:
    """Print lines that another program made of an answer, as they come."""
    for one in lines:
        _print(one.rstrip("\n"))


def plain_row(row: Sequence[Cell]) -> None:
    """Cells with tabs between them."""
    _print("\t".join(_plain(cell) for cell in row))


def csv_row(row: Sequence[Cell]) -> None:
    """Cells as a line of CSV, quoted where that is needed."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([_plain(cell) for cell in row])
    _print(text.getvalue())


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], empty: str, has_headers: bool | None = None
) -> None:
    """Rows under headings; without a terminal, tab-separated and without headings.

    Args:
        empty: what a person is told where there are none.
        has_headers: whether there are headings; None: on a terminal alone.
    """
    if not is_terminal():
        if has_headers:
            plain_row(columns)
        for row in rows:
            plain_row(row)
        return
    cells = [[one_line(shown(cell)) for cell in row] for row in rows]
    if not cells:
        complain(empty)
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    found = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=has_headers is not False)
    for number, column in enumerate(columns):
        is_number = all(_is_number(row[number]) for row in cells)
        is_name = number == 0 and max(len(row[0]) for row in cells) <= LONGEST_NAME
        found.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=is_name)
    for each in cells:
        found.add_row(*(Text(cell) for cell in each))
    console().print(found)


def fields(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Names and values, one a line; what has none is left out on a terminal."""
    each = list(pairs)
    if not is_terminal():
        for name, value in each:
            _write(f"{one_line(name)}\t{_plain(value)}", sys.stdout)
        return
    width = max((len(name) for name, _ in each), default=0)
    for name, value in each:
        if value is not None:
            text = f"{one_line(name).ljust(width)}  {one_line(shown(value))}"
            _write(_fold(text, " " * (width + 2), sys.stdout), sys.stdout)


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
    return one_line(str(value))


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
