"""The commands webhooks list, create, show, rm, enable, disable, test, rotate, deliveries,
redeliver.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from perennial.cli.command import CommandContext, cli_command
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.lookup import resolve_id_or_name
from perennial.cli.output import Cell, format_time, print_fields, print_notice, print_text
from perennial.cli.states import WEBHOOKS, build_state_filter_option
from perennial.guard import quote_shell_word
from perennial.text import make_text_one_line

if TYPE_CHECKING:
    from perennial import Perennial, types

ATTEMPT_S = 20.0
"""Seconds to wait for a delivery attempt, longer than the service's own timeout."""


@click.group("webhooks", cls=SuggestingCommandGroup)
def webhook_commands() -> None:
    """Manage webhooks: notifications of events by signed POST requests."""


@cli_command(
    "list", webhook_commands, columns=("webhook", "address", "state", "waiting", "last delivery")
)
@build_state_filter_option("--state", "state", WEBHOOKS)
def run_list_webhooks_command(shell: CommandContext, state: str | None) -> None:
    """List your webhooks, with the result of each one's last delivery."""
    hooks = [one for one in shell.create_client().webhooks.list() if state in (None, one.state)]
    rows = [(one.id, one.url, one.state, one.pending, _format_last_delivery(one)) for one in hooks]
    shell.print_rows(hooks, rows, "No webhook.")


def _create_client_and_find_webhook_id(
    shell: CommandContext, webhook: str
) -> tuple[Perennial, str]:
    """Create a client, and find the id of a webhook given by id or URL."""
    client = shell.create_client()
    return client, resolve_id_or_name(
        webhook, "webhook", "whk_", client.webhooks.list(), lambda one: one.url
    )


def _format_last_delivery(one: types.Webhook) -> str | None:
    if one.last is None:
        return None
    status = "" if one.last.status is None else f" {one.last.status}"
    return f"{one.last.state}{status}, {format_time(one.last.sent_at)}"


@cli_command("create", webhook_commands)
@click.argument("address")
@click.option(
    "--event",
    "-e",
    "events",
    multiple=True,
    metavar="TYPE",
    help="Event to send, such as job.failed; can be repeated. Default: all.",
)
@click.option("--model", "-m", metavar="MODEL", help="Only events of this model.")
def run_create_webhook_command(
    shell: CommandContext, address: str, events: tuple[str, ...], model: str | None
) -> None:
    """Register a receiver, https://…. Its secret is printed once, on standard output."""
    # click gives an empty tuple without the option, and the service refuses an empty list.
    _print_new_webhook_secret(
        shell, shell.create_client().webhooks.create(address, events=events or None, model=model)
    )


@cli_command("rotate", webhook_commands)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def run_rotate_secret_command(shell: CommandContext, webhook: str) -> None:
    """Create a new secret; for a day deliveries are signed with the old one too."""
    client, webhook = _create_client_and_find_webhook_id(shell, webhook)
    _print_new_webhook_secret(shell, client.webhooks.rotate(webhook))


def _print_new_webhook_secret(shell: CommandContext, webhook: types.NewWebhook) -> None:
    def print_secret() -> None:
        print_notice(f"Webhook {webhook.id} for {webhook.url}. The secret is shown this once:")
        # Alone on standard output, so that a script can store it.
        print_text(webhook.secret)

    shell.print_result(webhook, print_secret)


@cli_command("show", webhook_commands)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def run_show_webhook_command(shell: CommandContext, webhook: str) -> None:
    """Show one webhook: its state and events."""
    client, webhook = _create_client_and_find_webhook_id(shell, webhook)
    hook = client.webhooks.retrieve(webhook)
    rows: list[tuple[str, Cell]] = [
        ("webhook", hook.id),
        ("address", hook.url),
        ("model", hook.model_name or "all"),
        ("events", ", ".join(hook.events)),
        ("state", hook.state),
        ("because", hook.disabled_because),
        ("failing since", format_time(hook.failing_since)),
        ("waiting", hook.pending),
        ("not kept", hook.dropped),
        ("last delivery", _format_last_delivery(hook)),
        ("created", format_time(hook.created_at)),
    ]
    shell.print_result(hook, lambda: print_fields(rows))


@cli_command("rm", webhook_commands)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def run_remove_webhook_command(shell: CommandContext, webhook: str) -> None:
    """Remove a webhook with its deliveries."""
    client, webhook = _create_client_and_find_webhook_id(shell, webhook)
    client.webhooks.delete(webhook)
    shell.print_result({"deleted": webhook}, lambda: print_text(f"Webhook {webhook} is removed."))


@cli_command("disable", webhook_commands)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def run_disable_webhook_command(shell: CommandContext, webhook: str) -> None:
    """Stop sending; events that occur meanwhile are not sent later."""
    client, webhook = _create_client_and_find_webhook_id(shell, webhook)
    hook = client.webhooks.update(webhook, enabled=False)
    shell.print_result(
        hook,
        lambda: print_text(
            f"Nothing is sent to {hook.url} until `perennial webhooks enable "
            f"{quote_shell_word(webhook)}`."
        ),
    )


@cli_command("enable", webhook_commands)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def run_enable_webhook_command(shell: CommandContext, webhook: str) -> None:
    """Resume sending to a webhook, pending deliveries first."""
    client, webhook = _create_client_and_find_webhook_id(shell, webhook)
    hook = client.webhooks.update(webhook, enabled=True)
    shell.print_result(
        hook,
        lambda: print_text(f"{hook.url} gets notifications again; {hook.pending} deliveries wait."),
    )


@cli_command("test", webhook_commands)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
def run_send_test_event_command(shell: CommandContext, webhook: str) -> int:
    """Send a webhook.test event, and show its result."""
    client, webhook = _create_client_and_find_webhook_id(shell, webhook)
    return _wait_for_delivery_and_print_result(shell, client, client.webhooks.test(webhook))


@cli_command(
    "deliveries",
    webhook_commands,
    columns=("delivery", "event", "state", "attempts", "answer", "sent", "error"),
)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
@click.option(
    "--state",
    type=click.Choice(["pending", "delivered", "failed"]),
    help="Only deliveries in this state.",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Largest number of rows.",
)
def run_list_deliveries_command(
    shell: CommandContext, webhook: str, state: Any, limit: int
) -> None:
    """List sent and pending deliveries, newest first."""
    client, webhook = _create_client_and_find_webhook_id(shell, webhook)
    delivery_list = list(islice(client.webhooks.deliveries(webhook, state=state), limit))
    rows = [
        (one.id, one.type, one.state, one.attempts, one.status, format_time(one.sent_at), one.error)
        for one in delivery_list
    ]
    shell.print_rows(delivery_list, rows, "Nothing was sent.")


@cli_command("redeliver", webhook_commands)
@click.argument("webhook", metavar="WEBHOOK|ADDRESS")
@click.argument("delivery")
def run_resend_delivery_command(shell: CommandContext, webhook: str, delivery: str) -> int:
    """Send a delivery again, and show its result."""
    client, webhook = _create_client_and_find_webhook_id(shell, webhook)
    return _wait_for_delivery_and_print_result(
        shell, client, client.webhooks.redeliver(webhook, delivery)
    )


def _wait_for_delivery_and_print_result(
    shell: CommandContext, client: Perennial, requested: types.DeliveryDetail
) -> int:
    """Wait for the first attempt to deliver a webhook event; return 0 if it succeeded, else 1."""
    end = time.monotonic() + ATTEMPT_S
    delivery = requested
    # The service sends in the background, and its response comes before the attempt.
    while delivery.attempts == 0 and time.monotonic() < end:
        time.sleep(0.25)
        delivery = client.webhooks.retrieve_delivery(requested.webhook, requested.id)

    def print_delivery_result() -> None:
        if delivery.state == "delivered":
            print_text(
                f"{make_text_one_line(delivery.type)} was delivered: the receiver answered {delivery.status}."
            )
        elif delivery.attempts:
            print_notice(make_text_one_line(f"{delivery.type} was not taken. {delivery.error}"))
        else:
            list_command = f"perennial webhooks deliveries {quote_shell_word(delivery.webhook)}"
            print_notice(
                make_text_one_line(
                    f"{delivery.type} still waits: `{list_command}` shows how it goes."
                )
            )

    shell.print_result(delivery, print_delivery_result)
    return 0 if delivery.state == "delivered" else 1
