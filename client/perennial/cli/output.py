"""Output of commands: tables on a terminal, tab-separated lines elsewhere, JSON on request.

Results go to standard output; progress, warnings and errors go to standard error. All output passes
`_write_safe_text`, which replaces control characters that the service may send. A test fails for a
command that prints in another way.
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
from perennial.guard import escape_control_characters_in_json
from perennial.shapes import convert_to_json
from perennial.text import escape_control_characters, make_text_one_line

if TYPE_CHECKING:
    from rich.console import Console

NOTHING = "–"
"""Cell without a value."""
WIDTH = 80
"""Columns assumed for a terminal that does not report its width."""
LONGEST_NAME = 32
"""Most characters of a first column that is never wrapped: ids are no longer."""
_UNBROKEN = "\x00"
"""Placeholder for a space where a line must not break; printable text never contains it."""
Cell = str | int | float | bool | None


def is_stdout_terminal() -> bool:
    """Return True if standard output is a terminal."""
    return sys.stdout.isatty()


def print_notice(text: str) -> None:
    """Print a sentence to standard error."""
    _write_safe_text(wrap_lines(text, sys.stderr), sys.stderr)


def print_text(text: str) -> None:
    """Print a sentence to standard output."""
    _write_safe_text(wrap_lines(text, sys.stdout), sys.stdout)


def require_user_confirmation(question: str) -> None:
    """Ask the user to confirm an action.

    Raises:
        PerennialError: the person declined.
        ConfigError: no input is available.
    """
    with _distinguish_end_of_input(
        "Nothing was done: nobody answered. Say --yes where nobody can be asked."
    ):
        # On standard error, because standard output may be a file for the results.
        if not click.confirm(make_text_one_line(question), err=True):
            raise PerennialError("Nothing was done.")


def ask_for_text(
    question: str, missing: str, *, default: str | None = None, is_secret: bool = False
) -> str:
    """Ask the user for a text.

    Args:
        missing: the error message if standard input has ended.
        is_secret: do not echo the input.

    Raises:
        ConfigError: standard input has ended.
    """
    with _distinguish_end_of_input(missing):
        return str(
            click.prompt(
                make_text_one_line(question), default=default, hide_input=is_secret, err=True
            )
        )


@contextmanager
def _distinguish_end_of_input(missing: str) -> Iterator[None]:
    """Distinguish the end of standard input from Ctrl-C, for which click raises the same error."""
    try:
        yield
    except click.Abort as stopped:
        print_notice("")  # finish the line of the question
        if isinstance(stopped.__context__, EOFError):
            raise ConfigError(missing) from None
        raise


def _write_safe_text(text: str, stream: TextIO) -> None:
    """Print text without control characters; letters that the stream cannot encode become escapes."""
    text, encoding = escape_control_characters(text), stream.encoding or "utf-8"
    # Flushed, so that results and progress keep their order on a common terminal.
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def wrap_lines(text: str, stream: TextIO) -> str:
    """Wrap lines between words for a terminal; commands stay on one line so that they can be
    copied."""
    text = escape_control_characters(text)
    if not stream.isatty():
        return text
    return "\n".join(_wrap_line(paragraph, "", stream) for paragraph in text.split("\n"))


def _wrap_line(text: str, hanging: str, stream: TextIO) -> str:
    unindented = text.lstrip()
    if not unindented or unindented.startswith("perennial "):
        return text
    # At least 40 columns: in a narrow window, a sentence would become a column of words.
    indent, width = text[: len(text) - len(unindented)], max(40, _get_terminal_width(stream))
    before, colon, typed = unindented.rpartition(": perennial ")
    if colon and len(text) > width:  # a long command stays whole, on a line of its own
        return f"{_wrap_line(f'{indent}{before}:', hanging, stream)}\n{indent}  perennial {typed}"
    unbreakable_text = re.sub(
        r"`[^`]*`", lambda quoted: quoted[0].replace(" ", _UNBROKEN), unindented
    )
    # Options and file names have hyphens, and broken there they could not be copied.
    return textwrap.fill(
        unbreakable_text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(_UNBROKEN, " ")


def print_json_document(value: Any) -> None:
    """Print one JSON document to standard output."""
    _write_json_to_sink(value, 2 if is_stdout_terminal() else None, None)


def print_json_line(value: Any) -> None:
    """Print one of several JSON documents as a line of its own."""
    _write_json_to_sink(value, None, (",", ":"))


def _write_json_to_sink(value: Any, indent: int | None, separators: tuple[str, str] | None) -> None:
    text = json.dumps(
        convert_to_json(value), ensure_ascii=False, indent=indent, separators=separators
    )
    _json_sink.get()(escape_control_characters_in_json(text))


def _write_line_to_stdout(text: str) -> None:
    _write_safe_text(text, sys.stdout)


_json_sink: ContextVar[Callable[[str], None]] = ContextVar(
    "json_sink", default=_write_line_to_stdout
)
"""Receives every JSON document that a command prints."""


@contextmanager
def send_json_output_to_sink(sink: Callable[[str], None]) -> Iterator[None]:
    """Within the block, send JSON output to `sink` instead of standard output."""
    token = _json_sink.set(sink)
    try:
        yield
    finally:
        _json_sink.reset(token)


def print_lines_as_received(lines: Iterable[str]) -> None:
    """Print the lines of another program, such as jq, as they arrive."""
    for one in lines:
        _write_line_to_stdout(one.rstrip("\n"))


def print_plain_row(row: Sequence[Cell]) -> None:
    """Print the cells of a table row separated by tabs."""
    _write_line_to_stdout("\t".join(_format_plain_cell(cell) for cell in row))


def print_csv_row(row: Sequence[Cell]) -> None:
    """Print the cells of a table row as CSV, quoted where necessary."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([_format_plain_cell(cell) for cell in row])
    _write_line_to_stdout(text.getvalue())


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    empty: str,
    has_headers: bool | None = None,
) -> None:
    """Print a table; without a terminal, tab-separated and without headings.

    Args:
        empty: the message for a person if there are no rows.
        has_headers: whether to print headings; None: only on a terminal.
    """
    if not is_stdout_terminal():
        if has_headers:
            print_plain_row(columns)
        for row in rows:
            print_plain_row(row)
        return
    cells = [[make_text_one_line(format_table_cell(cell)) for cell in row] for row in rows]
    if not cells:
        print_notice(empty)
        return
    # rich takes a moment to import, and only a terminal needs it.
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=has_headers is not False
    )
    for number, column in enumerate(columns):
        is_number = all(_is_numeric_cell(row[number]) for row in cells)
        is_name = number == 0 and max(len(row[0]) for row in cells) <= LONGEST_NAME
        table.add_column(
            column, justify="right" if is_number else "left", overflow="fold", no_wrap=is_name
        )
    for each in cells:
        # Text, because rich would interpret brackets in a name as markup.
        table.add_row(*(Text(cell) for cell in each))
    create_console().print(table)


def print_fields(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Print pairs of a name and a value, one per line; a terminal shows only those with a value."""
    each = list(pairs)
    if not is_stdout_terminal():
        for name, value in each:
            _write_safe_text(f"{make_text_one_line(name)}\t{_format_plain_cell(value)}", sys.stdout)
        return
    width = max((len(name) for name, _ in each), default=0)
    for name, value in each:
        if value is not None:
            text = f"{make_text_one_line(name).ljust(width)}  {make_text_one_line(format_table_cell(value))}"
            _write_safe_text(_wrap_line(text, " " * (width + 2), sys.stdout), sys.stdout)


def create_console() -> Console:
    """Return a rich console for standard output, as wide as the terminal; NO_COLOR disables
    colour."""
    from rich.console import Console

    return Console(width=_get_terminal_width(sys.stdout))


def _get_terminal_width(stream: TextIO) -> int:
    """Return the width of a terminal in columns; COLUMNS overrides it."""
    text = os.environ.get("COLUMNS", "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    try:
        # Of this stream: shutil.get_terminal_size looks at standard
        # output alone, which may be a pipe.
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError):  # the stream is no terminal
        return WIDTH


def _is_numeric_cell(cell: str) -> bool:
    # A missing value does not turn a column of numbers into one of texts.
    return cell == NOTHING or cell.lstrip("+-").replace(".", "").replace(",", "").isdigit()


def format_table_cell(value: Cell) -> str:
    """Format a table cell for a person; a missing value becomes a dash."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value)


def _format_plain_cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    # A tab or line end in a value would shift the columns.
    return make_text_one_line(str(value))


def format_bytes(count: int | None) -> str:
    """Return a number of bytes for a person, such as 12.3 MB."""
    if count is None:
        return "–"
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def format_short_time(text: str | None) -> str | None:
    """Return a time in UTC without its year, for a table: 11-23 14:35."""
    return None if text is None else f"{text[5:10]} {text[11:16]}"


def format_time(text: str | None) -> str | None:
    """Return a time in short form: 2026-11-23 14:35 UTC."""
    return None if text is None else f"{text[:10]} {text[11:16]} UTC"
