"""What every command takes: --json, --profile, --url; and how it gets its client."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perennial.cli.output import document, line

if TYPE_CHECKING:
    from perennial import Perennial

SECONDS = click.FloatRange(min=0, min_open=True)


@dataclass(frozen=True)
class Shell:
    """How a command was called."""

    is_json: bool
    profile: str | None
    url: str | None

    def client(self) -> Perennial:
        """The client for this call.

        Raises:
            ConfigError: see `perennial.config`.
        """
        from perennial import Perennial

        return Perennial(base_url=self.url, profile=self.profile)

    def answer(self, value: Any, show: Callable[[], None]) -> None:
        """One document with --json, else what `show` prints."""
        if self.is_json:
            document(value)
        else:
            show()

    def stream(self, value: Any, show: Callable[[], None]) -> None:
        """One line of several."""
        if self.is_json:
            line(value)
        else:
            show()


def command(
    name: str, group: click.Group | None = None, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command; its first argument is the `Shell`."""

    def make(work: Callable[..., Any]) -> click.Command:
        @functools.wraps(work)
        def run(is_json: bool, profile: str | None, url: str | None, **values: Any) -> Any:
            return work(Shell(is_json, profile, url), **values)

        decorate: Callable[[Callable[..., Any]], click.Command] = click.command(name, **settings)
        made = decorate(run)
        made.params += [
            click.Option(["--json", "is_json"], is_flag=True, help="Answer as JSON."),
            click.Option(["--profile"], metavar="NAME", help="A profile of `perennial login`."),
            click.Option(["--url"], metavar="URL", help="Address of the service."),
        ]
        if group is not None:
            group.add_command(made)
        return made

    return make


def json_value(text: str) -> Any:
    """What an option says in JSON, or in @FILE that holds it."""
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except OSError as error:
        raise click.BadParameter(f"{text[1:]}: {error.strerror}.") from error
    except ValueError as error:
        said = f"{text[:60]!r} is not JSON ({error})."
        raise click.BadParameter(f"{said} Write it such as '{{\"epochs\": 5}}'.") from error


RECIPE = click.option(
    "--recipe", type=json_value, metavar="JSON|@FILE", help="A recipe override, such as '{\"epochs\": 5}'."
)
REASON = click.option("--reason", metavar="TEXT", help="Why; it is kept.")
VERSION = click.option("--version", "-v", default="production", show_default=True, help="Number or alias.")
