"""promote, rollback, follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from perennial import words
from perennial.cli.command import REASON, Shell, command
from perennial.cli.output import say
from perennial.errors import Invalid
from perennial.text import one_line
from perennial.types import Alias

if TYPE_CHECKING:
    from perennial import Perennial


@command("promote", short_help="Put production on a version.")
@click.argument("model")
@click.argument("version", type=int)
@REASON
@click.option("--alias", default="production", show_default=True, help="Which name to put on it.")
def promote(shell: Shell, model: str, version: int, reason: str | None, alias: str) -> None:
    """Put production on a version; one that is held needs a --reason."""
    client = shell.client()
    with _known_version(client, model, version):
        found = client.aliases.set(model, alias, version, reason=reason)
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
    client = shell.client()
    with _known_version(client, model, version):
        found = client.aliases.rollback(model, version, alias=alias, reason=reason)
    shell.answer(found, lambda: _moved(model, found))


@command("follow", short_help="Let production follow the line again.")
@click.argument("model")
def follow(shell: Shell, model: str) -> None:
    """Let production follow the line again after a rollback."""
    found = shell.client().aliases.follow(model)
    shell.answer(found, lambda: _moved(model, found))


@contextmanager
def _known_version(client: Perennial, model: str, version: int | None) -> Iterator[None]:
    """Let a version that does not exist be one that is not found: the service calls the request wrong."""
    try:
        yield
    except Invalid:
        if version is not None:
            client.versions.retrieve(model, version)
        raise


def _moved(model: str, alias: Alias) -> None:
    say(one_line(f"{alias.name} of {model} is at version {alias.version}."))
    for warning in alias.warnings:
        say(words.by_commands(warning))
