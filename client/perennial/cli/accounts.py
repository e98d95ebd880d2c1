"""keys: list, create, revoke; audit; usage."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from perennial.cli.command import DYNAMIC, Shell, command
from perennial.cli.groups import Commands
from perennial.cli.moments import FUTURE, PAST
from perennial.cli.named import find_id
from perennial.cli.output import complain, say, size, when
from perennial.text import one_line


@click.group("keys", cls=Commands)
def keys() -> None:
    """Make, list and revoke access keys; wants an admin's key."""


@command("list", keys, columns=("key", "name", "owner", "scope", "valid until"))
def list_keys(shell: Shell) -> None:
    """All keys, without their secrets."""
    found = list(shell.client().keys.list())
    rows = [(one.id, one.name, one.owner, _may(one), _until(one)) for one in found]
    shell.rows(found, rows, "No key.")


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
    "--expires",
    type=FUTURE,
    metavar="30d|DATE",
    help="After 30d or 12h, at the end of a date such as 2027-01-31 (UTC), or at 2027-01-31T08:00:00Z; of scope "
    "predict required.",
)
@click.option("--model", "-m", metavar="MODEL", help="Of scope predict: the model that it asks.")
@click.option("--alias", metavar="ALIAS", help="Of scope predict: the alias, such as production.")
@click.option("--requests-per-s", type=float, metavar="N", help="Of scope predict; default 5.")
@click.option("--images-per-day", type=int, metavar="N", help="Of scope predict; default 1000.")
def create(shell: Shell, name: str, expires: str | None, **wanted: Any) -> None:
    """Make a key. Its secret is on standard output, this once."""
    found = shell.client().keys.create(name, expires_at=expires, **wanted)

    def show() -> None:
        complain(f"Key {found.id} of {found.owner} ({_may(found)}). The secret is shown this once:")
        say(found.secret)

    shell.answer(found, show)


@command("revoke", keys)
@click.argument("key", metavar="KEY|NAME")
def revoke(shell: Shell, key: str) -> None:
    """End a key's validity. KEY is its id; a NAME must be that of one valid key alone."""
    client = shell.client()
    valid = (one for one in client.keys.list() if not one.revoked_at)
    found = find_id(key, "key", "key_", valid, lambda one: one.name)
    client.keys.delete(found)
    named = "" if found == key else f" ({key})"
    shell.answer({"revoked": found}, lambda: say(one_line(f"Key {found}{named} is revoked.")))


@command("audit", columns=("at", "owner", "key", "action", "object"), short_help="Who changed what.")
@click.option("--model", "-m", metavar="MODEL", help="Of one model.")
@click.option("--action", metavar="ACTION", help="Such as alias.set.")
@click.option(
    "--since", type=PAST, metavar="7d|DATE", help="From 7d or 12h ago, a date or 2026-11-01T00:00:00Z on."
)
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
    rows = ((when(one.at), one.owner, one.key or "a worker", one.action, one.object) for one in changes)
    shell.rows(None, rows, "Nothing was changed.")


@command("usage", columns=DYNAMIC, short_help="Bytes and jobs, by model or owner.")
@click.option("--by", type=click.Choice(["model", "owner"]), default="model", show_default=True)
def usage(shell: Shell, by: str) -> None:
    """Bytes and jobs, by model or owner. Wants an admin's key."""
    client = shell.client()
    found: list[Any] = list(client.usage.by_model() if by == "model" else client.usage.by_owner())
    rows = [(of.name if by == "model" else of.owner, of.tasks, of.versions, size(_all(of))) for of in found]
    shell.rows(found, rows, "Nothing is stored.", (by, "tasks", "versions", "bytes"))


def _all(usage: Any) -> int:
    """Bytes in all: the total where the service names it, else the sum."""
    counts = {name: value for name, value in usage.bytes.to_dict().items() if isinstance(value, int)}
    return int(counts.get("total", counts.get("all", sum(counts.values()))))
