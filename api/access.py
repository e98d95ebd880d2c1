"""Who may come in: keys, checked once and then remembered for a few seconds.

A key that was revoked or has expired stops working within `REMEMBER_S` seconds in every API process. With
`PERENNIAL_AUTH=off` everybody is the administrator, so then only loopback connections that also name a
loopback host are served (a web page elsewhere could otherwise reach the service through the browser).
"""

import hashlib
import hmac
import ipaddress
import re
import time
from typing import Any, Protocol

from starlette.types import Scope

from core.errors import NotAllowed, NotAuthenticated
from core.requests.actor import Actor

REMEMBER_S = 3.0
MAX_REMEMBERED = 10_000
_KEY = re.compile(r"pk_([a-z0-9]{12})_[A-Za-z0-9_-]{43}")


class KeyRow(Protocol):
    """What is known of a key."""

    @property
    def id(self) -> str: ...
    @property
    def owner_id(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def expires_at(self) -> float | None: ...
    @property
    def revoked_at(self) -> float | None: ...


class Keys(Protocol):
    """Where keys are looked up."""

    async def key(self, prefix: str) -> Any: ...


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

    async def actor(self, scope: Scope) -> Actor:
        """The caller of a request.

        Raises:
            NotAuthenticated: no key, or one that is unknown, revoked or expired.
            NotAllowed: authentication is off and the request is not a loopback one.
            Unavailable: the database does not answer.
        """
        if self._anyone is not None:
            require_loopback(scope)
            return self._anyone
        header = _header(scope, b"authorization")
        if header is None:
            raise NotAuthenticated("Send your key as `Authorization: Bearer pk_…`.")
        digest = hashlib.sha256(header).digest()
        known = self._known.get(digest)
        now = time.monotonic()
        if known is not None and known[1] > now:
            return known[0]
        actor, expires_at = await self._look_up(header)
        until = now + REMEMBER_S
        if expires_at is not None:
            until = min(until, now + max(0.0, expires_at - time.time()))
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[digest] = (actor, until)
        return actor

    async def _look_up(self, header: bytes) -> tuple[Actor, float | None]:
        kind, _, token = header.decode("latin-1").partition(" ")
        match = _KEY.fullmatch(token.strip()) if kind.lower() == "bearer" else None
        if match is None:
            raise NotAuthenticated("This is no Perennial key: send `Authorization: Bearer pk_…`.")
        row: KeyRow | None = await self._keys.key(match.group(1))
        given = hashlib.sha256(token.strip().encode()).hexdigest()
        # One answer for unknown, wrong, revoked and expired: a guesser learns nothing.
        if not hmac.compare_digest(given, row.hash if row is not None else "0" * 64) or row is None:
            raise NotAuthenticated("The key is unknown, revoked or expired.")
        now = time.time()
        if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
            raise NotAuthenticated("The key is unknown, revoked or expired.")
        self.used[row.id] = now
        return Actor(row.owner_id, row.id, row.scope), row.expires_at


def is_loopback(host: str) -> bool:
    """Whether a host name or address names this machine itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_loopback(scope: Scope) -> None:
    """Refuse a request that did not come in by a loopback address and name.

    Raises:
        NotAllowed: it did not.
    """
    server = scope.get("server") or ("", None)
    host = (_header(scope, b"host") or b"").decode("latin-1")
    name = host if host.endswith("]") else re.sub(r":\d*\Z", "", host)
    if not is_loopback(name) or not is_loopback(server[0]):
        raise NotAllowed(
            "With PERENNIAL_AUTH=off the service answers only on a loopback address and host name"
            " (127.0.0.1, [::1] or localhost)."
        )


def _header(scope: Scope, name: bytes) -> bytes | None:
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None
