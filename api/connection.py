"""A connection of the HTTP server whose client must finish the head of a request in time.

The server itself waits for a head for ever: a few hundred clients that send half of one, or nothing, would take all
file descriptors (slow-loris). Bodies have limits of their own (`api.uploads`, `api.guard`). Started with
`uvicorn --http api.connection:Connection`.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with a limit on the time from the first moment of a request to the end of its head."""

    HEAD_S = 30.0
    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come: it owes a head."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._have_head()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The first byte of a request, on a kept connection too."""
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> Any:
        """All of a head has come."""
        self._have_head()
        return super().on_headers_complete()

    def _expect_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self.HEAD_S, self.transport.close)

    def _have_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
