"""All connections of a server: their limits and their deadlines.

There are limits per address and in total. Behind a trusted proxy, requests in progress are counted
per client that the proxy names. When all places are taken, a new connection replaces the one that
has waited longest without a request. Many idle addresses therefore cannot keep others out.
Connections never take the last file descriptors: these stay free for files of existing connections
and for refusals. One timer checks all connections, instead of one timer per request.
"""

import asyncio
from typing import Protocol

import structlog

from api.server.proxies import TrustedProxies, derive_address_counting_key
from core import telemetry
from core.errors import TooManyConnections
from core.files import descriptors
from core.settings import Settings

log = structlog.get_logger(__name__)

RETRY_S = 5
LOOK_S = 1.0
MAX_LEAVING = 16
"""Number of refused connections kept open for a moment to read the reason; more are closed
at once.
"""
TELL_S = 60.0
"""Seconds between two log lines about the same limit, since it may be reached thousands of
times.
"""


class WatchedConnection(Protocol):
    """A connection that can be checked and aborted."""

    def check_connection_deadline(self, now: float) -> None:
        """Abort the connection if a deadline has passed at this time of the event loop."""

    def abort_connection_if_idle(self) -> bool:
        """Abort the connection unless a request is in progress; return True if aborted."""


class ConnectionLimiter:
    """Counts and watches the connections of one process.

    Args:
        settings: the limits; those on connections are lowered to what the file descriptors allow.
    """

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.proxies = TrustedProxies(settings.trusted_proxies)
        reserved = settings.reserved_descriptors
        allowed = descriptors.increase_file_descriptor_limit(
            2 * settings.max_connections + reserved
        )
        # Half of the descriptors: a request may need an open file beside its connection.
        self.most = max(1, min(settings.max_connections, (allowed - reserved) // 2))
        # One address can never take all places.
        self.most_of_one = max(1, min(settings.max_connections_per_address, self.most // 2))
        # The system assigns the lowest free number, so a high one shows that few are left.
        self._first_reserved = allowed - reserved
        self._loop = loop
        # A quarter of the shortest limit, so that each is enforced about in time.
        self._look_s = min(
            LOOK_S, settings.head_s / 4, settings.keep_alive_s / 4, settings.send_idle_s / 4
        )
        self._places: dict[WatchedConnection, str | None] = {}
        self._leaving: set[WatchedConnection] = set()
        self._by_address: dict[str, int] = {}
        self._told: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def register_connection(
        self, connection: WatchedConnection, address: str | None, descriptor: int
    ) -> bool:
        """Register a new connection of the server.

        Args:
            address: IP address of the client; None for a UNIX socket, which belongs to a proxy.
            descriptor: file descriptor number; the system assigns the lowest free one.

        Returns:
            True for a proxy's connection: its requests are counted by the client that each names.

        Raises:
            TooManyConnections: the address has too many connections, or no place is free.
        """
        key = (
            None
            if address is None or self.proxies.is_trusted_proxy(address)
            else derive_address_counting_key(address)
        )
        if key is not None:
            # Check the limit of the address first, so that it cannot displace idle connections of
            # others.
            self.acquire_address_slot_or_refuse(key)
        is_full = len(self._places) >= self.most and not self._abort_oldest_idle_connection()
        if is_full or descriptor >= self._first_reserved:
            if key is not None:
                self.release_address_slot(key)
            self._report_connection_limit("all")
            raise TooManyConnections(
                f"The service answers on {len(self._places)} connections and takes no more now. "
                f"Try again in a while.",
                retry_after_s=RETRY_S,
            )
        self._places[connection] = key
        self._start_deadline_timer()
        return key is None

    def acquire_address_slot_or_refuse(self, key: str) -> None:
        """Count one more connection or request for an address.

        Raises:
            TooManyConnections: the address has reached its limit.
        """
        count = self._by_address.get(key, 0)
        if count >= self.most_of_one:
            self._report_connection_limit("address")
            raise TooManyConnections(
                f"Your address has {count} connections open, as many as one may have. Close some, "
                f"or try again later.",
                retry_after_s=RETRY_S,
            )
        self._by_address[key] = count + 1

    def release_address_slot(self, key: str) -> None:
        """Subtract one connection or request from an address's count."""
        self._by_address[key] -= 1
        if not self._by_address[key]:
            del self._by_address[key]

    def keep_refused_connection_open(self, connection: WatchedConnection) -> bool:
        """Keep a refused connection open until the client has read the reason; False if there is no
        room.
        """
        if connection in self._places:
            return True
        if len(self._leaving) >= MAX_LEAVING:
            return False
        self._leaving.add(connection)
        self._start_deadline_timer()
        return True

    def remove_connection(self, connection: WatchedConnection) -> None:
        """Remove a closed connection from the counts."""
        self._leaving.discard(connection)
        key = self._places.pop(connection, None)
        if key is not None:
            self.release_address_slot(key)

    def _abort_oldest_idle_connection(self) -> bool:
        # A dictionary keeps the order of insertion: the first that gives way is the oldest.
        oldest = next((one for one in self._places if one.abort_connection_if_idle()), None)
        if oldest is None:
            return False
        self._report_connection_limit("idle")
        self.remove_connection(oldest)
        return True

    def _start_deadline_timer(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._look_s, self._check_connection_deadlines)

    def _check_connection_deadlines(self) -> None:
        self._timer = None
        now = self._loop.time()
        # A copy, since a check may close a connection, which leaves these sets.
        for connection in [*self._places, *self._leaving]:
            connection.check_connection_deadline(now)
        if self._places or self._leaving:
            self._start_deadline_timer()

    def _report_connection_limit(self, limit: str) -> None:
        telemetry.CONNECTIONS_REFUSED.labels(limit).inc()
        now = self._loop.time()
        if now >= self._told.get(limit, 0.0):
            self._told[limit] = now + TELL_S
            log.warning("connections refused", limit=limit, open=len(self._places), most=self.most)
