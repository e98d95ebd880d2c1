"""keys: list, create, revoke; audit; usage."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import click

from perennial.cli.command import Shell, command
from perennial.cli.output import complain, say, size, table, when

_FROM_NOW = re.compile(r"([0-9]{1,5})([dh])")
_UNITS = {"d": "days", "h": "hours"}


@click.group("keys")
def keys() -> None:
    """Make, list and revoke access keys; wants an admin's key."""


@command("list", keys)
def list_keys(shell: Shell) -> None:
    """All keys, without their secrets."""
    found = list(shell.client().keys.list())
    rows = [(one.id, one.name, one.owner, _may(one), _until(one)) for one in found]
    shell.answer(found, lambda: table(("key", "name", "owner", "scope", "valid until"), rows, "No key."))


def _may(key: Any) -> str:
    """Its scope, and what a key of scope predict asks."""
    bound = getattr(key, "bound", None)  # an older service names none
    if bound is None:
        return str(key.scope)
    return f"{key.scope} {bound.model}/{bound.alias}, {bound.images_today} of {bound.images_per_day} images today"


def _until(key: Any) -> str:
    if key.revoked_at:
        return f"revoked {key.revoked_at[:10]}"
    return when(key.expires_at) or "for ever"


@command("create", keys)
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["read", "write", "admin", "scrape", "predict"]),
    default="write",
    show_default=True,
    help="predict: asks one alias of one model, and may stand in a web page.",
)
@click.option("--owner", metavar="OWNER", help="Default: your own; a new name makes a new owner.")
@click.option(
    "--expires", metavar="TIME", help="Such as 30d, 12h or 2027-01-31T00:00:00Z; of scope predict required."
)
@click.option("--model", "-m", metavar="MODEL", help="Of scope predict: the model that it asks.")
@click.option("--alias", metavar="ALIAS", help="Of scope predict: the alias, such as production.")
@click.option("--requests-per-s", type=float, metavar="N", help="Of scope predict; default 5.")
@click.option("--images-per-day", type=int, metavar="N", help="Of scope predict; default 1000.")
def create(shell: Shell, name: str, expires: str | None, **wanted: Any) -> None:
    """Make a key. Its secret is on standard output, this once."""
    expires_at = None if expires is None else _moment(expires)
    found = shell.client().keys.create(name, expires_at=expires_at, **wanted)

    def show() -> None:
        complain(f"Key {found.id} of {found.owner} ({_may(found)}). The secret is shown this once:")
        say(found.secret)

    shell.answer(found, show)


def _moment(text: str) -> str:
    """A moment as the service reads it, which may be given as days or hours from now."""
    match = _FROM_NOW.fullmatch(text)
    if match is None:
        return text
    length = timedelta(**{_UNITS[match[2]]: int(match[1])})
    return (datetime.now(UTC) + length).isoformat(timespec="seconds")


@command("revoke", keys)
@click.argument("key")
def revoke(shell: Shell, key: str) -> None:
    """End a key's validity."""
    shell.client().keys.delete(key)
    shell.answer({"revoked": key}, lambda: say(f"Key {key} is revoked."))


@command("audit", short_help="Who changed what.")
@click.option("--model", "-m", metavar="MODEL", help="Of one model.")
@click.option("--action", metavar="ACTION", help="Such as alias.set.")
@click.option("--since", metavar="TIME", help="Such as 2026-11-01T00:00:00Z.")
@click.option("--newest", is_flag=True, help="The newest first.")
@click.option(
    "--limit", "-n", type=click.IntRange(1), default=100, show_default=True, help="How many at most."
)
def audit(shell: Shell, newest: bool, limit: int, **wanted: Any) -> None:
    """Who changed what; with --json a line for each change. Wants an admin's key."""
    changes = islice(shell.client().audit.list(order="desc" if newest else None, **wanted), limit)
    if shell.is_json:
        for one in changes:
            shell.stream(one, lambda: None)
        return
    rows = [(when(one.at), one.owner, one.key or "a worker", one.action, one.object) for one in changes]
    table(("at", "owner", "key", "action", "object"), rows, "Nothing was changed.")


@command("usage", short_help="Bytes and jobs, by model or owner.")
@click.option("--by", type=click.Choice(["model", "owner"]), default="model", show_default=True)
def usage(shell: Shell, by: str) -> None:
    """Bytes and jobs, by model or owner. Wants an admin's key."""
    client = shell.client()
    found: list[Any] = list(client.usage.by_model() if by == "model" else client.usage.by_owner())
    rows = [(of.name if by == "model" else of.owner, of.tasks, of.versions, size(_all(of))) for of in found]
    shell.answer(found, lambda: table((by, "tasks", "versions", "bytes"), rows, "Nothing is stored."))


def _all(usage: Any) -> int:
    """Bytes in all: the total where the service names it, else the sum."""
    counts = {name: value for name, value in usage.bytes.to_dict().items() if isinstance(value, int)}
    return int(counts.get("total", counts.get("all", sum(counts.values()))))
