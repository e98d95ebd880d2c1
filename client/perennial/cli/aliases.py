"""promote, rollback, follow."""

from __future__ import annotations

import click

from perennial import words
from perennial.cli.command import REASON, Shell, command
from perennial.cli.output import say
from perennial.text import one_line
from perennial.types import Alias


@command("promote", short_help="Put production on a version.")
@click.argument("model")
@click.argument("version", type=int)
@REASON
@click.option("--alias", default="production", show_default=True, help="Which name to put on it.")
def promote(shell: Shell, model: str, version: int, reason: str | None, alias: str) -> None:
    """Put production on a version; one that is held needs a --reason."""
    found = shell.client().aliases.set(model, alias, version, reason=reason)
    shell.answer(found, lambda: _moved(model, found))


@command("rollback", short_help="Put production back.")
@click.argument("model")
@click.option(
    "--to", "version", type=int, metavar="VERSION", help="Default: the one before whose gate passed."
)
@REASON
@click.option("--alias", default="production", show_default=True)
def rollback(shell: Shell, model: str, version: int | None, reason: str | None, alias: str) -> None:
    """Put production back, and say what it does not know now. It stays there until you promote, or `follow`."""
    found = shell.client().aliases.rollback(model, version, alias=alias, reason=reason)
    shell.answer(found, lambda: _moved(model, found))


@command("follow", short_help="Let production follow the line again.")
@click.argument("model")
def follow(shell: Shell, model: str) -> None:
    """Let production follow the line again after a rollback."""
    found = shell.client().aliases.follow(model)
    shell.answer(found, lambda: _moved(model, found))


def _moved(model: str, alias: Alias) -> None:
    say(one_line(f"{alias.name} of {model} is at version {alias.version}."))
    for warning in alias.warnings:
        say(words.by_commands(warning))
