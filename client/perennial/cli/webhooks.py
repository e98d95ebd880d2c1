"""webhooks: list, create, show, rm, enable, disable, test, rotate, deliveries, redeliver."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from perennial.cli.command import Shell, command
from perennial.cli.groups import Commands
from perennial.cli.named import find_id
from perennial.cli.output import Cell, complain, fields, say, when
from perennial.cli.states import WEBHOOKS, state_option
from perennial.guard import shell_word
from perennial.text import one_line

if TYPE_CHECKING:
    from perennial import Perennial, types

ATTEMPT_S = 20.0
"""Longer than an attempt of the service takes."""


@click.group("webhooks", cls=Commands)
def webhooks() -> None:
    """Be told by a signed POST what happens to your models."""


@command("list", webhooks, columns=("webhook", "address", "state", "waiting", "last delivery"))
@state_option("--state", "state", WEBHOOKS)
def list_webhooks(shell: Shell, state: str | None) -> None:
    """Your webhooks, and how the last delivery of each went."""
    found = [one for one in shell.client().webhooks.list() if state in (None, one.state)]
    rows = [(one.id, one.url, one.state, one.pending, _last(one)) for one in found]
    shell.rows(found, rows, "No webhook.")


def _named(shell: Shell, webhook: str) -> tuple[Perennial, str]:
    """A client, and the id of the webhook that was named by it or by its address."""
    client = shell.client()
    return client, find_id(webhook, "webhook", "whk_", client.webhooks.list(), lambda one: one.url)


def _last(one: types.Webhook) -> str | None:
    if one.last is None:
        return None
    status = "" if one.last.status is None else f" {one.last.status}"
    return f"{one.last.state}{status}, {when(one.last.sent_at)}"


@command("create", webhooks)
@click.argument("address")
@click.option(
    "--event",
    "-e",
    "events",
    multiple=True,
    metavar="TYPE",
    help="Such as job.failed; again for more. Default: all.",
)
@click.option("--model", "-m", metavar="MODEL", help="Only of this model.")
def create(shell: Shell, address: str, events: tuple[str, ...], model: str | None) -> None:
    """Name a receiver, https://…. Its secret is on standard output, this once."""
    _shown_once(shell, shell.client().webhooks.create(address, events=events or None, model=model))


@command("rotate", webhooks)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def rotate(shell: Shell, webhook: str) -> None:
    """Make a new secret; for a day deliveries are signed with the old one too."""
    client, webhook = _named(shell, webhook)
    _shown_once(shell, client.webhooks.rotate(webhook))


def _shown_once(shell: Shell, made: types.NewWebhook) -> None:
    def show() -> None:
        complain(f"Webhook {made.id} for {made.url}. The secret is shown this once:")
        say(made.secret)

    shell.answer(made, show)


@command("show", webhooks)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def show(shell: Shell, webhook: str) -> None:
    """One webhook: its state, and what it is told."""
    client, webhook = _named(shell, webhook)
    found = client.webhooks.retrieve(webhook)
    rows: list[tuple[str, Cell]] = [
        ("webhook", found.id),
        ("address", found.url),
        ("model", found.model_name or "all"),
        ("events", ", ".join(found.events)),
        ("state", found.state),
        ("because", found.disabled_because),
        ("failing since", when(found.failing_since)),
        ("waiting", found.pending),
        ("not kept", found.dropped),
        ("last delivery", _last(found)),
        ("created", when(found.created_at)),
    ]
    shell.answer(found, lambda: fields(rows))


@command("rm", webhooks)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def rm(shell: Shell, webhook: str) -> None:
    """Remove a webhook with its deliveries."""
    client, webhook = _named(shell, webhook)
    client.webhooks.delete(webhook)
    shell.answer({"deleted": webhook}, lambda: say(f"Webhook {webhook} is removed."))


@command("disable", webhooks)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def disable(shell: Shell, webhook: str) -> None:
    """Send nothing more; what happens meanwhile is not told later."""
    client, webhook = _named(shell, webhook)
    found = client.webhooks.update(webhook, enabled=False)
    shell.answer(
        found,
        lambda: say(
            f"Nothing is sent to {found.url} until `perennial webhooks enable {shell_word(webhook)}`."
        ),
    )


@command("enable", webhooks)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def enable(shell: Shell, webhook: str) -> None:
    """Send again, first what still waits."""
    client, webhook = _named(shell, webhook)
    found = client.webhooks.update(webhook, enabled=True)
    shell.answer(
        found, lambda: say(f"{found.url} is told again what happens; {found.pending} deliveries wait.")
    )


@command("test", webhooks)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def test(shell: Shell, webhook: str) -> int:
    """Send an event of the type webhook.test, and say how that went."""
    client, webhook = _named(shell, webhook)
    return _outcome(shell, client, client.webhooks.test(webhook))


@command(
    "deliveries",
    webhooks,
    columns=("delivery", "event", "state", "attempts", "answer", "sent", "error"),
)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
@click.option("--state", type=click.Choice(["pending", "delivered", "failed"]), help="Only those in it.")
@click.option(
    "--limit", "-n", type=click.IntRange(1), default=50, show_default=True, help="How many at most."
)
def deliveries(shell: Shell, webhook: str, state: Any, limit: int) -> None:
    """What was sent and what waits, newest first."""
    client, webhook = _named(shell, webhook)
    found = list(islice(client.webhooks.deliveries(webhook, state=state), limit))
    rows = [
        (one.id, one.type, one.state, one.attempts, one.status, when(one.sent_at), one.error) for one in found
    ]
    shell.rows(found, rows, "Nothing was sent.")


@command("redeliver", webhooks)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
@click.argument("delivery")
def redeliver(shell: Shell, webhook: str, delivery: str) -> int:
    """Send a delivery once more, and say how that went."""
    client, webhook = _named(shell, webhook)
    return _outcome(shell, client, client.webhooks.redeliver(webhook, delivery))


def _outcome(shell: Shell, client: Perennial, asked: types.DeliveryDetail) -> int:
    """Wait for the first attempt; 0 where it was taken, else 1."""
    end = time.monotonic() + ATTEMPT_S
    found = asked
    while found.attempts == 0 and time.monotonic() < end:
        time.sleep(0.25)
        found = client.webhooks.retrieve_delivery(asked.webhook, asked.id)

    def show() -> None:
        if found.state == "delivered":
            say(f"{one_line(found.type)} was delivered: the receiver answered {found.status}.")
        elif found.attempts:
            complain(one_line(f"{found.type} was not taken. {found.error}"))
        else:
            asked = f"perennial webhooks deliveries {shell_word(found.webhook)}"
            complain(one_line(f"{found.type} still waits: `{asked}` shows how it goes."))

    shell.answer(found, show)
    return 0 if found.state == "delivered" else 1
