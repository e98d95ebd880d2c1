"""All connections of a server: how many there may be, and which of them are overdue.

So many of one address, or, behind a trusted proxy, so many requests under way of the client that it names; and so many
in all. When all places are taken, whoever comes gets that of the connection that has waited longest without a request:
many addresses that send nothing cannot keep others out. The last file descriptors are never taken by a
connection, so that files can be opened for those that there are, and those that come can be told. One timer
looks at all connections, rather than one for each request.
"""

import asyncio
from typing import Protocol

import structlog

from api.proxies import Proxies, counted
from core import descriptors, telemetry
from core.errors import TooManyConnections
from core.settings import Settings

log = structlog.get_logger(__name__)

RETRY_S = 5
LOOK_S = 1.0
MAX_LEAVING = 16
"""Refused connections that are kept for a moment, so that they read why; others are closed at once."""
TELL_S = 60.0
"""A limit that is reached is logged once in so many seconds: whoever reaches it may do so a thousand times."""


class Watched(Protocol):
    """A connection."""

    def look(self, now: float) -> None:
        """Do what is due at this time of the event loop."""

    def gives_way(self) -> bool:
        """End at once, unless a request is being answered; whether it did."""


class Connections:
    """Counts and watches the connections of one process.

    Args:
        settings: the limits; those of connections are lowered to what the descriptors allow.
    """

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.proxies = Proxies(settings.trusted_proxies)
        reserved = settings.reserved_descriptors
        allowed = descriptors.raise_limit(2 * settings.max_connections + reserved)
        # Half of them: what a connection asks for may need a file of its own.
        self.most = max(1, min(settings.max_connections, (allowed - reserved) // 2))
        self.most_of_one = max(1, min(settings.max_connections_per_address, self.most // 2))
        self._first_reserved = allowed - reserved
        self._loop = loop
        self._look_s = min(LOOK_S, settings.head_s / 4, settings.keep_alive_s / 4, settings.send_idle_s / 4)
        self._places: dict[Watched, str | None] = {}
        self._leaving: set[Watched] = set()
        self._by_address: dict[str, int] = {}
        self._told: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: Watched, address: str | None, descriptor: int) -> bool:
        """Give a new connection a place.

        Args:
            address: None for a UNIX socket, which is a proxy's.
            descriptor: its number; the system gives out the lowest that is free.

        Returns:
            Whether it is a proxy's: its requests are counted, each by the client that it names.

        Raises:
            TooManyConnections: there is none.
        """
        key = None if address is None or self.proxies.trusts(address) else counted(address)
        if key is not None:
            self.take(key)
        is_full = len(self._places) >= self.most and not self._made_room()
        if is_full or descriptor >= self._first_reserved:
            if key is not None:
                self.give(key)
            self._tell("all")
            raise TooManyConnections(
                f"The service answers on {len(self._places)} connections and takes no more now. Try again in a while.",
                retry_after_s=RETRY_S,
            )
        self._places[connection] = key
        self._watch()
        return key is None

    def take(self, key: str) -> None:
        """Count one connection or request more of an address.

        Raises:
            TooManyConnections: it has as many as one may.
        """
        held = self._by_address.get(key, 0)
        if held >= self.most_of_one:
            self._tell("address")
            raise TooManyConnections(
                f"Your address has {held} connections open, as many as one may have. Close some, or try again later.",
                retry_after_s=RETRY_S,
            )
        self._by_address[key] = held + 1

    def give(self, key: str) -> None:
        """Count one less."""
        self._by_address[key] -= 1
        if not self._by_address[key]:
            del self._by_address[key]

    def may_stay(self, connection: Watched) -> bool:
        """Whether a connection that was told why it must go may stay until it has read that."""
        if connection in self._places:
            return True
        if len(self._leaving) >= MAX_LEAVING:
            return False
        self._leaving.add(connection)
        self._watch()
        return True

    def leave(self, connection: Watched) -> None:
        """It has gone."""
        self._leaving.discard(connection)
        key = self._places.pop(connection, None)
        if key is not None:
            self.give(key)

    def _made_room(self) -> bool:
        oldest = next((one for one in self._places if one.gives_way()), None)
        if oldest is None:
            return False
        self._tell("idle")
        self.leave(oldest)
        return True

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._look_s, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for connection in [*self._places, *self._leaving]:
            connection.look(now)
        if self._places or self._leaving:
            self._watch()

    def _tell(self, limit: str) -> None:
        telemetry.CONNECTIONS_REFUSED.labels(limit).inc()
        now = self._loop.time()
        if now >= self._told.get(limit, 0.0):
            self._told[limit] = now + TELL_S
            log.warning("connections refused", limit=limit, open=len(self._places), most=self.most)
