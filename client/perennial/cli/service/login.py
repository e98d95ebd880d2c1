"""The command login: store a service's URL and a key after trying them."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import TYPE_CHECKING

import click

from perennial import config
from perennial.cli.command import CommandContext, cli_command
from perennial.cli.output import ask_for_text, print_notice, print_text
from perennial.errors import (
    APIError,
    BadAnswer,
    ConfigError,
    Forbidden,
    NoKey,
    NotFound,
    Unauthorized,
)
from perennial.text import make_text_one_line

if TYPE_CHECKING:
    from perennial import Perennial

KEYS_PAGE = "/ui/admin/keys"
"""Page where an administrator creates keys in a browser."""


@cli_command("login", short_help="Store the URL of a service and a key.")
@click.argument("address", metavar="[URL]", required=False)
@click.option(
    "--key",
    metavar="PK",
    help="The key; without it, the command asks for it or reads it from standard input.",
)
@click.option(
    "--browser/--no-browser",
    default=None,
    help="Open the page on which keys are created; default: if the command asks for a key and "
    "there is a browser.",
)
def run_login_command(
    shell: CommandContext, address: str | None, key: str | None, browser: bool | None
) -> None:
    """Store the URL of a service and a key, after trying both.

    The URL can be that of any page of the service, such as
    `https://perennial.example.org/ui/models/birds`. On a terminal, the command asks for a missing
    URL. The key is stored in the system's keyring if the package keyring is installed, otherwise in
    a file that only you can read.
    """
    profile = shell.profile or os.environ.get("PERENNIAL_PROFILE") or config.DEFAULT_PROFILE
    if address and shell.url and address != shell.url:
        raise click.UsageError("There are two addresses: URL and --url. Name one.")
    url = config.extract_service_base_url(address or shell.url or _ask_for_url(profile))
    if browser or (
        browser is None and key is None and sys.stdin.isatty() and has_graphical_browser()
    ):
        page = f"{url}{KEYS_PAGE}"
        print_notice(f"Administrators make keys at {page}")
        webbrowser.open(page)
    if key is None:
        key = _ask_for_key(url)
    # Standard input leaves a line end, and a pasted key often has blanks.
    key = key.strip()
    if not key:
        raise ConfigError("The key is empty. One begins with pk_; an administrator makes it.")
    # Tried first, so that a mistyped key does not replace one that works.
    owner, scope = _fetch_owner_and_scope(url, key)
    where = config.store_profile(profile, url, key)
    result = {"profile": profile, "url": url, "owner": owner, "scope": scope, "stored_in": where}
    identity = f" as {make_text_one_line(owner)} ({scope})" if owner else ""
    shell.print_result(
        result, lambda: print_text(f"Logged in to {url}{identity}; the key is in {where}.")
    )


def has_graphical_browser() -> bool:
    """Return True if a graphical browser is available; a text browser would take over the
    terminal.
    """
    is_drawn = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if not is_drawn:
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _ask_for_url(profile: str) -> str:
    """Ask for the service's URL, proposing the stored or configured one."""
    stored = config.read_profiles().get(profile, {}).get("url")
    default_url = os.environ.get("PERENNIAL_URL") or stored or config.DEFAULT_URL
    # Standard input has only the key if nobody is there to be asked.
    if not sys.stdin.isatty():
        return default_url
    return ask_for_text(
        "Address of the service", "No address came. Say it with --url.", default=default_url
    )


def _ask_for_key(url: str) -> str:
    missing = f"No key to {url} came. Say it with --key, or send it to standard input."
    if sys.stdin.isatty():
        return ask_for_text(f"Key to {url} (not shown)", missing, is_secret=True)
    text = sys.stdin.readline()
    if not text.strip():
        raise ConfigError(missing)
    return text


def _fetch_owner_and_scope(url: str, key: str) -> tuple[str | None, str | None]:
    """Ask the service for owner and scope of an API key. Raises Unauthorized if it is unknown.

    Raises:
        Unauthorized: the service does not know the key.
        BadAnswer: there is no Perennial service at this URL.
    """
    from perennial import Perennial

    try:
        with Perennial(key, base_url=url) as client:
            return _fetch_owner_and_scope_of_key(client)
    except Unauthorized as error:  # The service's own message says to log in.
        raise Unauthorized(
            error.status, {**error.problem, "detail": f"{url} does not know this key."}
        ) from error
    except NoKey as error:
        raise NoKey(
            "This is no key of Perennial: one begins with pk_ and has plain letters and digits."
        ) from error


def _fetch_owner_and_scope_of_key(client: Perennial) -> tuple[str | None, str | None]:
    try:
        me = client.me()
        return me.owner, me.scope
    # A key of scope scrape or predict has no access to it.
    except Forbidden as error:
        if error.code != "not-allowed":  # the response of a proxy
            raise
        return None, "predict" if "of scope predict" in str(error) else "scrape"
    except NotFound:  # an older service: any response shows that the key is valid
        try:
            next(iter(client.models.list()), None)
        except (NotFound, BadAnswer) as error:
            message = (
                f"No Perennial service answers at {client.connection.url}. Is the address right?"
            )
            raise (
                NotFound(error.status, {"detail": message})
                if isinstance(error, APIError)
                else BadAnswer(message)
            ) from error
        return None, None
