"""The commands logout, whoami, status, open."""

from __future__ import annotations

import webbrowser
from urllib.parse import quote

import click

from perennial import config
from perennial.cli.command import CommandContext, cli_command
from perennial.cli.exits import ExitStatus
from perennial.cli.output import print_fields, print_notice, print_text
from perennial.errors import APIError, NotFound
from perennial.shapes import convert_to_json
from perennial.text import make_text_one_line
from perennial.types import ListedModel


@cli_command("logout", short_help="Remove the URL and key of a profile.")
def run_logout_command(shell: CommandContext) -> None:
    """Remove the URL and the key of a profile; the key stays valid until it is revoked."""
    profile = shell.profile or config.DEFAULT_PROFILE
    was_there = config.remove_service_profile(profile)
    message = f"Forgot the profile {profile}." if was_there else f"There was no profile {profile}."
    shell.print_result({"profile": profile, "forgotten": was_there}, lambda: print_text(message))


@cli_command("whoami", short_help="Show the owner and permissions of your key.")
def run_whoami_command(shell: CommandContext) -> None:
    """Show the owner and permissions of your key, and the service's limits."""
    client = shell.create_client()
    try:
        me = client.me()
    # A wrong key has another error, so the service lacks the route, and the key is valid.
    except NotFound:
        print_notice(
            f"The service at {client.connection.url} is older and does not tell whose a key is; "
            f"the key was accepted."
        )
        known_details = {"url": client.connection.url, "key_from": client.connection.source}
        shell.print_result(known_details, lambda: print_fields(known_details.items()))
        return
    rows = [
        ("service", client.connection.url),
        ("key from", client.connection.source),
        ("key", me.key),
    ]
    rows += [("owner", me.owner), ("scope", me.scope), ("expires", me.expires_at or "never")]
    limits = (convert_to_json(me.limits) or {}).items()
    rows += [(name, "no limit" if value is None else str(value)) for name, value in limits]
    shell.print_result(me, lambda: print_fields(rows))


@cli_command("status", short_help="Show if the service responds, and what needs a decision.")
@click.option(
    "--exit-code",
    "is_told",
    is_flag=True,
    help="Exit with 5 if the service is not ready, with 10, 11 or 12 if a held, rejected or failed "
    "batch needs a decision, and with 1 if something else does.",
)
def run_status_command(shell: CommandContext, is_told: bool) -> int:
    """Show if the service responds, which jobs run, and which models need a decision."""
    client = shell.create_client()
    try:
        ready = client.ready()
    except APIError as error:
        # A service that is not ready sends the same document with status 503.
        if error.status != 503:
            raise
        from perennial import types
        from perennial.shapes import convert_from_json

        ready = convert_from_json(types.Ready, error.problem)
    models = list(client.models.list())
    running = list(client.jobs.list(state="running"))
    queued = list(client.jobs.list(state="queued"))
    result = {
        "url": client.connection.url,
        "ready": ready,
        "running": running,
        "queued": queued,
        "attention": [
            {"model": model.name, "entries": model.attention} for model in models if model.attention
        ],
    }

    def print_service_status() -> None:
        parts = f"database {ready.database}, store {ready.store}, broker {ready.broker}"
        rows = [
            ("service", f"{client.connection.url} is {ready.status} ({parts})"),
            ("models", str(len(models))),
        ]
        print_fields([*rows, ("jobs", f"{len(running)} running, {len(queued)} queued")])
        _print_items_needing_attention(models)

    shell.print_result(result, print_service_status)
    return _choose_exit_of_status_command(ready.status, models) if is_told else 0


def _choose_exit_of_status_command(ready: str, models: list[ListedModel]) -> int:
    """Return the exit status of `perennial status`: 0, or which problem or decision is pending.

    For pending decisions it is the status that a submit would have ended with.
    """
    if ready != "ready":
        return ExitStatus.UNAVAILABLE
    waits = {entry.kind for model in models for entry in model.attention}
    status_by_kind = {
        "held": ExitStatus.HELD,
        "rejected": ExitStatus.REJECTED,
        "failed": ExitStatus.FAILED,
    }
    return next(
        (status for kind, status in status_by_kind.items() if kind in waits),
        ExitStatus.ERROR if waits else 0,
    )


def _print_items_needing_attention(models: list[ListedModel]) -> None:
    from perennial import words

    for model in models:
        for entry in model.attention:
            print_text(
                f"\n{make_text_one_line(model.name)}: "
                + "\n".join(words.describe_attention_item(model.name, entry))
            )


@cli_command("open", short_help="Open the service's page in a browser.")
@click.argument("model", required=False)
def run_open_pages_command(shell: CommandContext, model: str | None) -> None:
    """Open the service's pages in a browser, or the page of MODEL. The URL is printed too."""
    # No client for the address alone: a browser logs in by itself, without this key.
    page = f"{config.find_service_connection(shell.url, profile=shell.profile).url}/ui"
    if model is not None:
        # safe='', because a slash in a name would lead to another page.
        page += f"/models/{quote(shell.create_client().models.retrieve(model).name, safe='')}"

    def print_and_open_page_url() -> None:
        print_text(page)
        if not webbrowser.open(page):
            print_notice("There is no browser here: open the address where there is one.")

    shell.print_result({"url": page}, print_and_open_page_url)
