"""Authentication of requests by key or session, cached for a few seconds.

A revoked or expired key stops working within `REMEMBER_S` seconds in every API process. It stops at
once where the caller asks for a `fresh` check: for every request that changes something, and
repeatedly during a transfer (`api.authentication.key_watch`).

With `PERENNIAL_AUTH=off` every caller is the administrator. Only loopback connections that also
name a loopback host are served then: a web page elsewhere could otherwise reach the service through
the browser.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.types import Scope

from api.authentication import session
from api.server.loopback import find_request_header, require_loopback_request
from core.database.polling import PolledBrowserSessionRow
from core.errors import NotAuthenticated
from core.keys.sessions import IDLE_S, digest_session_token
from core.requests.actor import Actor, PredictKeyBinding

# Clients poll jobs and events: without a cache, each poll would read its key from the database.
REMEMBER_S = 1.0
MAX_REMEMBERED = 10_000
AuthenticatedCaller = tuple[Actor, float | None]
"""An authenticated caller and the latest time to cache it (seconds since 1970; None: no limit)."""
_SESSION = "session\n"
"""Prefix of cached session tokens. A header cannot contain a line break, so none can imitate it."""
_KEY = re.compile(r"pk_([a-z0-9]{12})_[A-Za-z0-9_-]{43}")


class ApiKeyRow(Protocol):
    """Database row of an API key, with the columns that authentication needs."""

    @property
    def id(self) -> str:
        """Id of the key, `key_…`."""

    @property
    def owner_id(self) -> str:
        """Id of the owner of the key."""

    @property
    def hash(self) -> str:
        """SHA-256 of the whole key, in hex."""

    @property
    def scope(self) -> str:
        """Scope of the key: scrape, predict, read, write or admin."""

    @property
    def expires_at(self) -> float | None:
        """Expiry in seconds since 1970; None: it never expires."""

    @property
    def revoked_at(self) -> float | None:
        """Time of revocation in seconds since 1970; None: it is not revoked."""

    @property
    def model_id(self) -> str | None:
        """Id of the only model that a key of scope predict may use; None for other scopes."""

    @property
    def model_name(self) -> str | None:
        """Current name of the only model that a key of scope predict may use; None for other
        scopes.
        """

    @property
    def alias(self) -> str | None:
        """Name of the only model alias that a key of scope predict may use; None for other scopes."""


class ApiKeyAndSessionSource(Protocol):
    """Database interface through which authentication looks up API keys and login sessions."""

    async def find_key_by_prefix(self, prefix: str) -> Any:
        """Return the API key whose public prefix is this one, or None if there is none."""

    async def find_session(self, digest: str) -> PolledBrowserSessionRow | None:
        """Return the login session whose cookie has this SHA-256 in hex, or None if there is none."""


class Authenticator:
    """Finds out who sends a request, by API key or session cookie, with a short-lived cache.

    Args:
        keys: looks up keys and sessions.
        anyone: the caller to assume when authentication is off, else None.
    """

    def __init__(self, keys: ApiKeyAndSessionSource, anyone: Actor | None = None) -> None:
        self._keys = keys
        self._anyone = anyone
        self._known: dict[bytes, tuple[Actor, float]] = {}
        self.used: dict[str, float] = {}
        """Key id → time of last use, until `KeyUseRecorder` writes it to the database."""
        self.seen: dict[str, float] = {}
        """Digest of a session's token → time of its last request, likewise."""

    async def authenticate_request(self, scope: Scope, *, fresh: bool = False) -> Actor:
        """Return the caller of a request.

        Args:
            fresh: read the key, or the session and its key, from the database instead of the cache.

        Raises:
            NotAuthenticated: there is no key and no session, or it is unknown, revoked or expired.
            InsufficientKeyScope: authentication is off and the request is not from loopback or is from
                another site; or a session is used outside the service's own pages.
            Unavailable: the database does not answer.
        """
        if self._anyone is not None:
            require_loopback_request(scope)
            # The browser on this machine reaches loopback on behalf of any page that it shows.
            session.refuse_cross_site_change(scope)
            return self._anyone
        authorization = find_request_header(scope, b"authorization")
        if authorization is not None:
            return await self._authenticate_with_cache(
                authorization, self._authenticate_api_key, fresh
            )
        token = session.find_session_token_and_check_own_page(scope)
        if token is None:
            raise NotAuthenticated("Send your key as `Authorization: Bearer pk_…`.")
        # Never from the cache: a logout in another process must count here at once.
        return await self._authenticate_with_cache(
            f"{_SESSION}{token}", self._authenticate_session, True
        )

    def forget_cached_session(self, token: str) -> None:
        """Drop a login session from the authentication cache, because it has ended."""
        self._known.pop(hashlib.sha256(f"{_SESSION}{token}".encode("latin-1")).digest(), None)

    def forget_cached_key(self, key_id: str) -> None:
        """Drop an API key from the authentication cache, because it was revoked."""
        # Copy the items: the loop removes some of them.
        for digest_of_all, (actor, _) in list(self._known.items()):
            if actor.key_id == key_id:
                self._known.pop(digest_of_all, None)

    async def _authenticate_with_cache(
        self, credential: str, look_up: Callable[[str], Awaitable[AuthenticatedCaller]], fresh: bool
    ) -> Actor:
        # Headers were decoded as Latin-1, so every one of their characters can be encoded again.
        digest_of_all = hashlib.sha256(credential.encode("latin-1")).digest()
        cached = self._known.get(digest_of_all)
        now = time.monotonic()
        if cached is not None and cached[1] > now and not fresh:
            return cached[0]
        try:
            actor, expires_at = await look_up(credential)
        # A fresh check may find a caller invalid who is still cached as valid.
        except NotAuthenticated:
            self._known.pop(digest_of_all, None)
            raise
        until = now + REMEMBER_S
        # A cache entry must not outlive its key.
        if expires_at is not None:
            until = min(until, now + max(0.0, expires_at - time.time()))
        # Clearing all entries is simpler than evicting some, and costs each caller one lookup.
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[digest_of_all] = (actor, until)
        return actor

    async def _authenticate_session(self, credentials: str) -> AuthenticatedCaller:
        key = digest_session_token(credentials.removeprefix(_SESSION))
        row = await self._keys.find_session(key)
        now = time.time()
        ends = None if row is None else min(row.expires_at, row.key_expires_at or row.expires_at)
        # `seen_at` is written periodically: this process may know of a later request.
        idle = row is not None and now > max(row.seen_at, self.seen.get(key, 0.0)) + IDLE_S
        if row is None or ends is None or ends <= now or idle or row.key_revoked_at is not None:
            raise NotAuthenticated("You are not logged in any more. Log in again.")
        # Noted in memory alone: a write for each use of a key would slow every read down.
        self.used[row.key_id] = self.seen[key] = now
        return Actor(row.owner_id, row.key_id, row.scope, (row.key_name, row.owner_name)), ends

    async def _authenticate_api_key(self, credentials: str) -> AuthenticatedCaller:
        kind, _, token = credentials.partition(" ")
        match = _KEY.fullmatch(token.strip()) if kind.lower() == "bearer" else None
        if match is None:
            raise NotAuthenticated("This is no Perennial key: send `Authorization: Bearer pk_…`.")
        row: ApiKeyRow | None = await self._keys.find_key_by_prefix(match.group(1))
        digest_of_key = hashlib.sha256(token.strip().encode()).hexdigest()
        # The same response for unknown, wrong, revoked and expired keys: guessing reveals nothing.
        # An unknown prefix is compared too, so that it takes the same time.
        if (
            not hmac.compare_digest(digest_of_key, row.hash if row is not None else "0" * 64)
            or row is None
        ):
            raise NotAuthenticated("The key is unknown, revoked or expired.")
        now = time.time()
        if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
            raise NotAuthenticated("The key is unknown, revoked or expired.")
        self.used[row.id] = now
        return Actor(
            row.owner_id, row.id, row.scope, bound=_build_predict_key_binding(row)
        ), row.expires_at


def _build_predict_key_binding(row: ApiKeyRow) -> PredictKeyBinding | None:
    if row.model_id is None or row.model_name is None or row.alias is None:
        return None
    return PredictKeyBinding(row.model_id, row.model_name, row.alias)
