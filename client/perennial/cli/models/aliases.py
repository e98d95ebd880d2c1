"""Commands for aliases: promote, rollback, follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from perennial import words
from perennial.cli.command import REASON, CommandContext, cli_command
from perennial.cli.output import print_text
from perennial.errors import Invalid
from perennial.text import make_text_one_line
from perennial.types import Alias

if TYPE_CHECKING:
    from perennial import Perennial


@cli_command("promote", short_help="Move production to a version.")
@click.argument("model")
@click.argument("version", type=int)
@REASON
@click.option("--alias", default="production", show_default=True, help="Alias to move.")
def run_promote_version_command(
    shell: CommandContext, model: str, version: int, reason: str | None, alias: str
) -> None:
    """Move production to a version; a held version requires a --reason."""
    client = shell.create_client()
    with _convert_invalid_to_version_not_found(client, model, version):
        moved_alias = client.aliases.set(model, alias, version, reason=reason)
    shell.print_result(moved_alias, lambda: _print_alias_target(model, moved_alias))


@cli_command("rollback", short_help="Move production back.")
@click.argument("model")
@click.option(
    "--to",
    "version",
    type=int,
    metavar="VERSION",
    help="Default: the newest earlier version that passed its gate.",
)
@REASON
@click.option("--alias", default="production", show_default=True)
def run_roll_production_back_command(
    shell: CommandContext, model: str, version: int | None, reason: str | None, alias: str
) -> None:
    """Move production back, and show what it no longer knows. It stays there until you promote or
    `follow`.
    """
    client = shell.create_client()
    with _convert_invalid_to_version_not_found(client, model, version):
        moved_alias = client.aliases.rollback(model, version, alias=alias, reason=reason)
    shell.print_result(moved_alias, lambda: _print_alias_target(model, moved_alias))


@cli_command("follow", short_help="Let production follow the lineage again.")
@click.argument("model")
def run_let_production_follow_command(shell: CommandContext, model: str) -> None:
    """Let production follow the lineage again after a rollback."""
    moved_alias = shell.create_client().aliases.follow(model)
    shell.print_result(moved_alias, lambda: _print_alias_target(model, moved_alias))


@contextmanager
def _convert_invalid_to_version_not_found(
    client: Perennial, model: str, version: int | None
) -> Iterator[None]:
    """Within the block, raise NotFound for a missing version that the service reports as Invalid."""
    try:
        yield
    # Asked only after a refusal, so that a move costs a single request.
    except Invalid:
        if version is not None:
            # Raises NotFound if it is the version that is missing.
            client.versions.retrieve(model, version)
        raise


def _print_alias_target(model: str, alias: Alias) -> None:
    print_text(make_text_one_line(f"{alias.name} of {model} is at version {alias.version}."))
    for warning in alias.warnings:
        print_text(words.replace_requests_by_commands(warning))
