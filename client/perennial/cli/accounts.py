"""keys: list, create, revoke; audit; usage."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from perennial.cli.command import Shell, command
from perennial.cli.output import complain, say, size, table, when


@click.group("keys")
def keys() -> None:
    """Make, list and revoke access keys; wants an admin's key."""


@command("list", keys)
def list_keys(shell: Shell) -> None:
    """All keys, without their secrets."""
    found = list(shell.client().keys.list())
    rows = [(one.id, one.name, one.owner, one.scope, _until(one)) for one in found]
    shell.answer(found, lambda: table(("key", "name", "owner", "scope", "valid until"), rows, "No key."))


def _until(key: Any) -> str:
    if key.revoked_at:
        return f"revoked {key.revoked_at[:10]}"
    return when(key.expires_at) or "for ever"


@command("create", keys)
@click.argument("name")
@click.option(
    "--scope", type=click.Choice(["read", "write", "admin", "scrape"]), default="write", show_default=True
)
@click.option("--owner", metavar="OWNER", help="Default: your own; a new name makes a new owner.")
@click.option("--expires", "expires_at", metavar="TIME", help="Such as 2027-01-31T00:00:00Z.")
def create(shell: Shell, name: str, scope: Any, owner: str | None, expires_at: str | None) -> None:
    """Make a key. Its secret is on standard output, this once."""
    found = shell.client().keys.create(name, scope=scope, owner=owner, expires_at=expires_at)

    def show() -> None:
        complain(f"Key {found.id} of {found.owner} ({found.scope}). The secret is shown this once:")
        say(found.secret)

    shell.answer(found, show)


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
