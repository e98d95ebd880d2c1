"""Commands for accounts: keys (list, create, revoke), audit, usage.

`TimeParameter` is the type of their options for a time: a date, a time, or a duration from now.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Any

import click

from perennial.cli.command import DYNAMIC, CommandContext, cli_command
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.lookup import resolve_id_or_name
from perennial.cli.output import format_bytes, format_time, print_notice, print_text
from perennial.text import make_text_one_line

_LENGTH = re.compile(r"([0-9]{1,5}) ?([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class TimeParameter(click.ParamType[str]):
    """click type of an option for a date, time or duration.

    Args:
        is_past: True: a duration such as 30d lies in the past, and a date means its beginning.
            False: it lies in the future, and a date means its end.
    """

    name = "moment"

    def __init__(self, *, is_past: bool) -> None:
        self._is_past = is_past

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Parse a date, time or duration into an RFC 3339 time in UTC."""
        text = str(value).strip()
        length = _LENGTH.fullmatch(text)
        try:
            if length is not None:
                duration = timedelta(**{_UNITS[length[2]]: int(length[1])})
                moment = datetime.now(UTC) + (-duration if self._is_past else duration)
            # As a time, a date would be its first second, and a key would end a day too early.
            elif len(text) == len("2027-01-31"):
                moment = datetime.combine(date.fromisoformat(text), self._get_default_time(), UTC)
            else:
                moment = datetime.fromisoformat(text)
                moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is no moment: write it such as 30d, 12h, 2027-01-31 or "
                f"2027-01-31T08:00:00Z",
                param,
                ctx,
            )

    def _get_default_time(self) -> time:
        return time.min if self._is_past else time(23, 59, 59)


FUTURE, PAST = TimeParameter(is_past=False), TimeParameter(is_past=True)


@click.group("keys", cls=SuggestingCommandGroup)
def key_commands() -> None:
    """Create, list and revoke access keys; requires an admin key."""


@cli_command("list", key_commands, columns=("key", "name", "owner", "scope", "valid until"))
def run_list_keys_command(shell: CommandContext) -> None:
    """List all keys, without their secrets."""
    key_list = list(shell.create_client().keys.list())
    rows = [
        (one.id, one.name, one.owner, _describe_key_scope(one), _format_key_validity(one))
        for one in key_list
    ]
    shell.print_rows(key_list, rows, "No key.")


def _describe_key_scope(key: Any) -> str:
    """Describe an API key's scope, and the limits of a key of scope predict."""
    bound = getattr(key, "bound", None)  # an older service does not send it
    if bound is None:
        return str(key.scope)
    return (
        f"{key.scope} {bound.model}/{bound.alias}, {bound.images_today} of "
        f"{bound.images_per_day} images today"
    )


def _format_key_validity(key: Any) -> str:
    if key.revoked_at:
        return f"revoked {key.revoked_at[:10]}"
    return format_time(key.expires_at) or "for ever"


@cli_command("create", key_commands)
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["read", "write", "admin", "scrape", "predict"]),
    default="write",
    show_default=True,
    help="predict: requests predictions of one alias of one model; suits web pages.",
)
@click.option("--owner", metavar="OWNER", help="Owner; default: you. A new name creates an owner.")
@click.option(
    "--expires",
    type=FUTURE,
    metavar="30d|DATE",
    help="Expiry: after 30d or 12h, at the end of a date such as 2027-01-31 (UTC), or at "
    "2027-01-31T08:00:00Z; required for scope predict.",
)
@click.option("--model", "-m", metavar="MODEL", help="For scope predict: the model.")
@click.option("--alias", metavar="ALIAS", help="For scope predict: the alias, such as production.")
@click.option("--requests-per-s", type=float, metavar="N", help="For scope predict; default 5.")
@click.option("--images-per-day", type=int, metavar="N", help="For scope predict; default 1000.")
def run_create_key_command(
    shell: CommandContext, name: str, expires: str | None, **wanted: Any
) -> None:
    """Create a key. Its secret is printed once, on standard output."""
    new_key = shell.create_client().keys.create(name, expires_at=expires, **wanted)

    def print_created_key() -> None:
        print_notice(
            f"Key {new_key.id} of {new_key.owner} ({_describe_key_scope(new_key)}). The secret is "
            f"shown this once:"
        )
        # Alone on standard output, so that a script can store it.
        print_text(new_key.secret)

    shell.print_result(new_key, print_created_key)


@cli_command("revoke", key_commands)
@click.argument("key", metavar="KEY|NAME")
def run_revoke_key_command(shell: CommandContext, key: str) -> None:
    """Revoke a key. KEY is its id; a NAME must belong to exactly one valid key."""
    client = shell.create_client()
    # Revoked keys do not count, so that their names can be used again.
    valid = (one for one in client.keys.list() if not one.revoked_at)
    key_id = resolve_id_or_name(key, "key", "key_", valid, lambda one: one.name)
    client.keys.delete(key_id)
    named = "" if key_id == key else f" ({key})"
    shell.print_result(
        {"revoked": key_id},
        lambda: print_text(make_text_one_line(f"Key {key_id}{named} is revoked.")),
    )


@cli_command(
    "audit", columns=("at", "owner", "key", "action", "object"), short_help="Who changed what."
)
@click.option("--model", "-m", metavar="MODEL", help="Only changes of this model.")
@click.option("--action", metavar="ACTION", help="Only changes of this kind, such as alias.set.")
@click.option(
    "--since",
    type=PAST,
    metavar="7d|DATE",
    help="Only since then: 7d or 12h ago, a date, or 2026-11-01T00:00:00Z.",
)
@click.option("--newest", is_flag=True, help="Newest first.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Largest number of rows.",
)
def run_audit_trail_command(shell: CommandContext, newest: bool, limit: int, **wanted: Any) -> None:
    """Show who changed what; with --json one line per change. Requires an admin key."""
    # The list is read lazily, so no page beyond the limit is requested.
    changes = islice(
        shell.create_client().audit.list(order="desc" if newest else None, **wanted), limit
    )
    # One document per change, so that a long trail is printed while it is read.
    if shell.is_json:
        for one in changes:
            shell.print_one_result(one, lambda: None)
        return
    rows = (
        (format_time(one.at), one.owner, one.key or "a worker", one.action, one.object)
        for one in changes
    )
    shell.print_rows(None, rows, "Nothing was changed.")


@cli_command("usage", columns=DYNAMIC, short_help="Bytes and jobs, by model or owner.")
@click.option("--by", type=click.Choice(["model", "owner"]), default="model", show_default=True)
def run_storage_usage_command(shell: CommandContext, by: str) -> None:
    """Show bytes and jobs, by model or owner. Requires an admin key."""
    client = shell.create_client()
    items: list[Any] = list(client.usage.by_model() if by == "model" else client.usage.by_owner())
    rows = [
        (
            usage.name if by == "model" else usage.owner,
            usage.tasks,
            usage.versions,
            format_bytes(_get_total_stored_bytes(usage)),
        )
        for usage in items
    ]
    shell.print_rows(items, rows, "Nothing is stored.", (by, "tasks", "versions", "bytes"))


def _get_total_stored_bytes(usage: Any) -> int:
    """Return an owner's or model's total stored bytes: the service's total if it sends one, else a
    sum.
    """
    counts = {
        name: value for name, value in usage.bytes.to_dict().items() if isinstance(value, int)
    }
    return int(counts.get("total", counts.get("all", sum(counts.values()))))
