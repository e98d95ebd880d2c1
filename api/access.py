"""Who may come in: keys and sessions, checked once and then remembered for a few seconds.

A key that was revoked or has expired stops working within `REMEMBER_S` seconds in every API process, and at once
wherever the caller asks for a `fresh` look: for all that changes something, and again and again while a body comes or
an answer goes (`api.key_watch`). With
`PERENNIAL_AUTH=off` everybody is the administrator, so then only loopback connections that also name a
loopback host are served (a web page elsewhere could otherwise reach the service through the browser).
"""

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.types import Scope

from api import session
from api.loopback import header, require_loopback
from core.db.polling import SessionRow
from core.errors import NotAuthenticated
from core.requests.actor import Actor, Bound
from core.requests.sessions import IDLE_S, digest

REMEMBER_S = 1.0
MAX_REMEMBERED = 10_000
Found = tuple[Actor, float | None]
"""A caller, and until when at most he may be remembered (seconds since 1970)."""
_SESSION = "session\n"
"""Begins what is remembered of a session: no header holds a line break, so that none can pass for one."""
_KEY = re.compile(r"pk_([a-z0-9]{12})_[A-Za-z0-9_-]{43}")


class KeyRow(Protocol):
    """What is known of a key."""

    @property
    def id(self) -> str:
        """`key_…`."""

    @property
    def owner_id(self) -> str:
        """Whose key it is."""

    @property
    def hash(self) -> str:
        """SHA-256 of the whole key, in hex."""

    @property
    def scope(self) -> str:
        """scrape, predict, read, write or admin."""

    @property
    def expires_at(self) -> float | None:
        """Seconds since 1970; None: never."""

    @property
    def revoked_at(self) -> float | None:
        """Seconds since 1970; None: it is not revoked."""

    @property
    def model_id(self) -> str | None:
        """Of the model that a key of scope predict may ask."""

    @property
    def model_name(self) -> str | None:
        """Present name of that model."""

    @property
    def alias(self) -> str | None:
        """Alias that such a key may ask."""


class Keys(Protocol):
    """Where keys and sessions are looked up."""

    async def key(self, prefix: str) -> Any:
        """The row of the key with that prefix, None if there is none."""

    async def session(self, digest: str) -> SessionRow | None:
        """The session whose cookie has that SHA-256 in hex, None if there is none."""


class Access:
    """Authenticates requests.

    Args:
        keys: finds a key by its public prefix.
        anyone: the caller to assume when authentication is off, else None.
    """

    def __init__(self, keys: Keys, anyone: Actor | None = None) -> None:
        self._keys = keys
        self._anyone = anyone
        self._known: dict[bytes, tuple[Actor, float]] = {}
        self.used: dict[str, float] = {}
        """Key id → time of last use, for whoever writes it down."""
        self.seen: dict[str, float] = {}
        """Digest of a session's token → time of its last request, likewise."""

    async def actor(self, scope: Scope, *, fresh: bool = False) -> Actor:
        """The caller of a request.

        Args:
            fresh: look at the key, or at the session and its key, as they are now, whatever is remembered.

        Raises:
            NotAuthenticated: no key and no session, or one that is unknown, revoked or expired.
            NotAllowed: authentication is off and the request is not a loopback one, or another site's; or the
                session is not asked by the service's own pages.
            Unavailable: the database does not answer.
        """
        if self._anyone is not None:
            require_loopback(scope)
            session.refuse_foreign(scope)
            return self._anyone
        given = header(scope, b"authorization")
        if given is not None:
            return await self._remembered(given, self._look_up, fresh)
        token = session.token(scope)
        if token is None:
            raise NotAuthenticated("Send your key as `Authorization: Bearer pk_…`.")
        return await self._remembered(f"{_SESSION}{token}", self._look_up_session, True)

    def forget(self, token: str) -> None:
        """A session has ended: its token stands for nobody here from now on."""
        self._known.pop(hashlib.sha256(f"{_SESSION}{token}".encode("latin-1")).digest(), None)

    def forget_key(self, key_id: str) -> None:
        """A key was revoked: nobody is remembered here for it from now on."""
        for given, (actor, _) in list(self._known.items()):
            if actor.key_id == key_id:
                self._known.pop(given, None)

    async def _remembered(self, given: str, look_up: Callable[[str], Awaitable[Found]], fresh: bool) -> Actor:
        digest_of_all = hashlib.sha256(given.encode("latin-1")).digest()
        known = self._known.get(digest_of_all)
        now = time.monotonic()
        if known is not None and known[1] > now and not fresh:
            return known[0]
        try:
            actor, expires_at = await look_up(given)
        except NotAuthenticated:
            self._known.pop(digest_of_all, None)
            raise
        until = now + REMEMBER_S
        if expires_at is not None:
            until = min(until, now + max(0.0, expires_at - time.time()))
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[digest_of_all] = (actor, until)
        return actor

    async def _look_up_session(self, given: str) -> Found:
        key = digest(given.removeprefix(_SESSION))
        row = await self._keys.session(key)
        now = time.time()
        ends = None if row is None else min(row.expires_at, row.key_expires_at or row.expires_at)
        idle = row is not None and now > max(row.seen_at, self.seen.get(key, 0.0)) + IDLE_S
        if row is None or ends is None or ends <= now or idle or row.key_revoked_at is not None:
            raise NotAuthenticated("You are not logged in any more. Log in again.")
        self.used[row.key_id] = self.seen[key] = now
        return Actor(row.owner_id, row.key_id, row.scope, (row.key_name, row.owner_name)), ends

    async def _look_up(self, given: str) -> Found:
        kind, _, token = given.partition(" ")
        match = _KEY.fullmatch(token.strip()) if kind.lower() == "bearer" else None
        if match is None:
            raise NotAuthenticated("This is no Perennial key: send `Authorization: Bearer pk_…`.")
        row: KeyRow | None = await self._keys.key(match.group(1))
        found = hashlib.sha256(token.strip().encode()).hexdigest()
        # One answer for unknown, wrong, revoked and expired: a guesser learns nothing.
        if not hmac.compare_digest(found, row.hash if row is not None else "0" * 64) or row is None:
            raise NotAuthenticated("The key is unknown, revoked or expired.")
        now = time.time()
        if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
            raise NotAuthenticated("The key is unknown, revoked or expired.")
        self.used[row.id] = now
        return Actor(row.owner_id, row.id, row.scope, bound=_bound(row)), row.expires_at


def _bound(row: KeyRow) -> Bound | None:
    if row.model_id is None or row.model_name is None or row.alias is None:
        return None
    return Bound(row.model_id, row.model_name, row.alias)
