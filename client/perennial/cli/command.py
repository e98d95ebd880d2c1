"""Common options of commands (--json, --jq, --profile, --url, listings), and the client of a
command.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perennial.cli import listing
from perennial.cli.output import Cell, print_json_document, print_json_line

if TYPE_CHECKING:
    from perennial import Perennial

SECONDS = click.FloatRange(min=0, min_open=True)


@dataclass(frozen=True)
class CommandContext:
    """Options of the running command: output format, profile and URL of the service."""

    is_json: bool
    profile: str | None
    url: str | None
    form: listing.ListingFormat = field(default_factory=listing.ListingFormat)
    columns: tuple[str, ...] = ()

    def create_client(self) -> Perennial:
        """Create a client of the service that the command's options name.

        Raises:
            ConfigError: see `perennial.config`.
            NoKey: there is no key for the service.
            ServiceUnreachable: there is no key, and the service does not answer.
        """
        # Imported on first use, so that `--help` does not load the HTTP library.
        from perennial import Perennial

        client = Perennial(base_url=self.url, profile=self.profile)
        # Before the command's own work: packing a large folder would be for nothing.
        client.require_key()
        return client

    def print_result(self, value: Any, show: Callable[[], None]) -> None:
        """Print a result as one JSON document with --json, else by calling `show`."""
        if self.is_json:
            print_json_document(value)
        else:
            show()

    def print_rows(
        self,
        value: Any,
        rows: Iterable[Sequence[Cell]],
        empty: str,
        columns: Sequence[str] | None = None,
    ) -> None:
        """Print a result as one JSON document with --json, else as a table in the requested format.

        Args:
            empty: message if there are no rows.
            columns: headings; None: those that the command was declared with.

        Raises:
            UsageError: a requested column does not exist.
        """
        self.print_result(value, lambda: self.form.print_rows(columns or self.columns, rows, empty))

    def print_one_result(self, value: Any, show: Callable[[], None]) -> None:
        """Print one result of several: a JSON line with --json, else by calling `show`."""
        if self.is_json:
            print_json_line(value)
        else:
            show()


DYNAMIC = None
"""Marks columns that depend on the response."""
_NO_LISTING: tuple[str, ...] = ()


def cli_command(
    name: str,
    group: click.Group | None = None,
    *,
    columns: tuple[str, ...] | None = _NO_LISTING,
    **settings: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorator that makes a function a command of the command line, called with a
    `CommandContext`.

    Args:
        columns: headings of the rows for `CommandContext.print_rows`; `DYNAMIC`: they depend on the
            response; omitted: the command prints no rows.
    """
    has_rows = columns != _NO_LISTING

    def make_command(work: Callable[..., Any]) -> click.Command:
        # click takes the help of the command from the docstring.
        @functools.wraps(work)
        def run(
            is_json: bool, jq: str | None, profile: str | None, url: str | None, **values: Any
        ) -> Any:
            is_json = is_json or jq is not None
            form = (
                listing.pop_listing_format_options(values, columns, is_json=is_json)
                if has_rows
                else listing.ListingFormat()
            )
            with _build_jq_output_context(jq):
                return work(CommandContext(is_json, profile, url, form, columns or ()), **values)

        decorate: Callable[[Callable[..., Any]], click.Command] = click.command(name, **settings)
        new_command = decorate(run)
        # Appended, so that `--help` lists the options of the command itself first.
        new_command.params += [
            *(listing.build_listing_options(columns or ()) if has_rows else ()),
            click.Option(["--json", "is_json"], is_flag=True, help="Print JSON."),
            click.Option(
                ["--jq"],
                metavar="EXPRESSION",
                help="Pass the JSON through the program jq.",
            ),
            click.Option(["--profile"], metavar="NAME", help="A profile of `perennial login`."),
            click.Option(["--url"], metavar="URL", help="Address of the service."),
        ]
        if group is not None:
            group.add_command(new_command)
        return new_command

    return make_command


def _build_jq_output_context(expression: str | None) -> AbstractContextManager[None]:
    """Return a context that sends the command's JSON through jq, if an expression is given."""
    if expression is None:
        return nullcontext()
    from perennial.cli.jq import pipe_json_output_through_jq

    return pipe_json_output_through_jq(expression)


def parse_json_option(text: str) -> Any:
    """Parse a command-line option as JSON, given directly or in a file (@FILE)."""
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except OSError as error:
        raise click.BadParameter(f"{text[1:]}: {error.strerror}.") from error
    except ValueError as error:
        message = f"{text[:60]!r} is not JSON ({error})."
        raise click.BadParameter(f"{message} Write it such as '{{\"epochs\": 5}}'.") from error


RECIPE = click.option(
    "--recipe",
    type=parse_json_option,
    metavar="JSON|@FILE",
    help="A recipe override, such as '{\"epochs\": 5}'.",
)
REASON = click.option("--reason", metavar="TEXT", help="Reason, stored in the history.")
VERSION = click.option(
    "--version", "-v", default="production", show_default=True, help="Number or alias."
)
