"""login: the address of a service and a key to it, asked for and tried."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import TYPE_CHECKING

import click

from perennial import config
from perennial.cli.command import Shell, command
from perennial.cli.output import ask, complain, say
from perennial.errors import APIError, BadAnswer, ConfigError, Forbidden, NoKey, NotFound, Unauthorized
from perennial.text import one_line

if TYPE_CHECKING:
    from perennial import Perennial

KEYS_PAGE = "/ui/admin/keys"
"""Where an administrator makes keys in a browser."""


@command("login", short_help="Keep the address of a service and a key to it.")
@click.option("--key", metavar="PK", help="The key; left out, it is asked for, or read from standard input.")
@click.option(
    "--browser/--no-browser",
    default=None,
    help="Open the page on which keys are made; default: where a key is asked for and there is a browser.",
)
def login(shell: Shell, key: str | None, browser: bool | None) -> None:
    """Keep the address of a service and a key to it, after both were tried.

    The address is that of the service or of one of its pages, such as https://perennial.example.org/ui/models/birds;
    on a terminal it is asked for. The key goes to the system's keyring where the package keyring is installed, else to
    a file that you alone can read.
    """
    profile = shell.profile or os.environ.get("PERENNIAL_PROFILE") or config.DEFAULT_PROFILE
    url = config.checked_url(shell.url or _asked_url(profile))
    if browser or (browser is None and key is None and sys.stdin.isatty() and has_browser()):
        page = f"{url}{KEYS_PAGE}"
        complain(f"Administrators make keys at {page}")
        webbrowser.open(page)
    if key is None:
        key = _asked_key(url)
    key = key.strip()
    if not key:
        raise ConfigError("The key is empty. One begins with pk_; an administrator makes it.")
    owner, scope = _tried(url, key)
    where = config.store(profile, url, key)
    kept = {"profile": profile, "url": url, "owner": owner, "scope": scope, "stored_in": where}
    who = f" as {one_line(owner)} ({scope})" if owner else ""
    shell.answer(kept, lambda: say(f"Logged in to {url}{who}; the key is in {where}."))


def has_browser() -> bool:
    """Whether a browser opens in a window of its own; one of text would take the terminal."""
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


def _asked_url(profile: str) -> str:
    """The address that was kept or set, which a person confirms or replaces."""
    stored = config.profiles().get(profile, {}).get("url")
    known = os.environ.get("PERENNIAL_URL") or stored or config.DEFAULT_URL
    if not sys.stdin.isatty():
        return known
    return ask("Address of the service", "No address came. Say it with --url.", default=known)


def _asked_key(url: str) -> str:
    missing = f"No key to {url} came. Say it with --key, or send it to standard input."
    if sys.stdin.isatty():
        return ask(f"Key to {url} (not shown)", missing, is_secret=True)
    text = sys.stdin.readline()
    if not text.strip():
        raise ConfigError(missing)
    return text


def _tried(url: str, key: str) -> tuple[str | None, str | None]:
    """Return owner and scope of a key, as far as the service tells them.

    Raises:
        Unauthorized: it is none of this service.
        BadAnswer: there is no Perennial service.
    """
    from perennial import Perennial

    try:
        with Perennial(key, base_url=url) as client:
            return _owner_of(client)
    except Unauthorized as error:  # its own words say to log in
        raise Unauthorized(
            error.status, {**error.problem, "detail": f"{url} does not know this key."}
        ) from error
    except NoKey as error:
        raise NoKey(
            "This is no key of Perennial: one begins with pk_ and has plain letters and digits."
        ) from error


def _owner_of(client: Perennial) -> tuple[str | None, str | None]:
    try:
        me = client.me()
        return me.owner, me.scope
    except Forbidden as error:  # a key for figures alone, or for one alias of one model
        if error.code != "not-allowed":  # a proxy's
            raise
        return None, "predict" if "of scope predict" in str(error) else "scrape"
    except NotFound:  # an older service: any answer shows that the key is good
        try:
            next(iter(client.models.list()), None)
        except (NotFound, BadAnswer) as error:
            said = f"No Perennial service answers at {client.connection.url}. Is the address right?"
            raise (
                NotFound(error.status, {"detail": said}) if isinstance(error, APIError) else BadAnswer(said)
            ) from error
        return None, None
