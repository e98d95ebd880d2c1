"""Output options of listings: --columns, --csv, -q and --headers, for every command that prints
rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from perennial.cli.output import Cell, print_csv_row, print_plain_row, print_table

QUIET = "Print only the first column, such as names or ids, one value per line."
HEADERS = "Print headings or not; default: on a terminal and with --csv."


@dataclass(frozen=True)
class ListingFormat:
    """Output format of a table: terminal, CSV or tab-separated, with chosen columns.

    Attributes:
        columns: names of the columns to print, in this order, as typed; None: all.
        has_headers: None: the default for the destination.
    """

    columns: tuple[str, ...] | None = None
    is_csv: bool = False
    is_quiet: bool = False
    has_headers: bool | None = None

    def print_rows(
        self, columns: Sequence[str], rows: Iterable[Sequence[Cell]], empty: str
    ) -> None:
        """Print rows of a table in this format.

        Args:
            columns: all headings.
            empty: message if there are no rows.

        Raises:
            UsageError: a requested column does not exist.
        """
        indices = self.select_column_indices(columns)
        # A generator, so that the first pages of a listing are printed while others are fetched.
        headings, cells = (
            [columns[one] for one in indices],
            ([row[one] for one in indices] for row in rows),
        )
        if self.is_csv:
            for row in self._iterate_rows_with_headings_if_wanted(headings, cells, is_usual=True):
                print_csv_row(row)
        elif self.is_quiet:
            for row in cells:
                print_plain_row(row[:1])
        else:
            print_table(headings, cells, empty, self.has_headers)

    def _iterate_rows_with_headings_if_wanted(
        self, headings: list[str], rows: Iterable[list[Cell]], *, is_usual: bool
    ) -> Iterator[Sequence[Cell]]:
        if is_usual if self.has_headers is None else self.has_headers:
            yield headings
        yield from rows

    def select_column_indices(self, columns: Sequence[str]) -> list[int]:
        """Return the indices of the requested columns of a table. Raises UsageError for an unknown
        one.
        """
        if self.columns is None:
            return list(range(len(columns)))
        places = {_normalize_heading(name): index for index, name in enumerate(columns)}
        unknown = [name for name in self.columns if _normalize_heading(name) not in places]
        if unknown:
            raise click.UsageError(
                f"There is no column {unknown[0]!r}. Possible are {', '.join(columns)}."
            )
        return [places[_normalize_heading(name)] for name in self.columns]


def _normalize_heading(name: str) -> str:
    """Normalize a column heading, so that `last job`, `last-job` and `last_job` are equal."""
    return name.strip().casefold().replace(" ", "-").replace("_", "-")


def build_listing_options(columns: Sequence[str]) -> list[click.Option]:
    """Return the click options by which a user formats a table.

    Args:
        columns: columns known before the response, for the help.
    """
    column_list = f" of {', '.join(columns)}" if columns else ""
    return [
        click.Option(
            ["--columns"], metavar="A,B,…", help=f"Only these{column_list}; in this order."
        ),
        click.Option(["--csv", "is_csv"], is_flag=True, help="Print CSV with headings."),
        click.Option(["--quiet", "-q", "is_quiet"], is_flag=True, help=QUIET),
        click.Option(["--headers/--no-headers", "has_headers"], default=None, help=HEADERS),
    ]


NAMES = ("columns", "is_csv", "is_quiet", "has_headers")
"""Names of the parameters that `build_listing_options` adds."""


def pop_listing_format_options(
    values: dict[str, Any], columns: Sequence[str] | None, *, is_json: bool
) -> ListingFormat:
    """Remove the table-format options from a command's parameters, and return them as a format.

    Args:
        columns: all columns of the listing; None: they depend on the response.

    Raises:
        UsageError: options exclude each other, or a column does not exist.
    """
    # Removed, because the function of the command does not take them.
    typed, is_csv, is_quiet, has_headers = (values.pop(name) for name in NAMES)
    names = None if typed is None else tuple(name for name in typed.split(",") if name.strip())
    form = ListingFormat(names, is_csv, is_quiet, has_headers)
    given_options = [
        name
        for name, is_said in (
            ("--json", is_json),
            ("--csv", is_csv),
            ("--quiet", is_quiet),
        )
        if is_said
    ]
    if len(given_options) > 1:
        raise click.UsageError(f"{given_options[0]} and {given_options[1]} exclude each other.")
    if is_json and names is not None:
        raise click.UsageError(
            "--columns is of tables: with --json take --jq, such as --jq '.[].name'."
        )
    if names == ():
        raise click.UsageError("--columns names no column.")
    # A wrong name ends the command before any request.
    if columns is not None:
        form.select_column_indices(columns)
    return form
