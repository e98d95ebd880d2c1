"""A connection of the HTTP server: what somebody without a key can do to it has a limit.

The server itself waits for a head for ever, keeps as much of it as is sent, counts no connections, and waits for ever
for a client that does not read. Here the bytes of a head are counted before they are parsed, a connection without an
answer under way has one deadline, and a client must take what it is sent (`api.delivery`). Bodies have limits of
their own (`api.uploads`, `api.guard`). Whoever is refused is told why, in the order of his requests, before his
connection is closed. Started with `uvicorn --http api.connection:Connection`.
"""

import asyncio
import functools
import math
from collections import deque
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from api import problems
from api.connections import Connections
from api.delivery import Delivery
from api.headers import secured
from api.proxies import counted
from core.errors import (
    BadRequest,
    HeadTimeout,
    HeadTooLarge,
    PerennialError,
    TooManyConnections,
    TooManyRequests,
)
from core.settings import Settings

LINGER_S = 2.0
LINGER_BYTES = 1 << 20
"""How long, and for how many bytes, a refused client is listened to: to close at once would have the system take back
the answer that he has not read."""


@functools.lru_cache(4)
def connections_of(server: ServerState) -> Connections:
    """The connections of a server, with the limits of the environment."""
    return Connections(Settings(), asyncio.get_running_loop())


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, bounded."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections_of(server_state)
        self._limits = self._all.settings
        self._most = self._limits.max_head_bytes
        self._delivery: Delivery = None  # type: ignore[assignment]
        self._until = math.inf
        """When the connection is overdue; never, while an answer is under way."""
        self._is_new = True
        """True until a head has come whole: the time for the first one runs from the connection on, whatever stray
        bytes come before it."""
        self._in_head = False
        self._fed = 0
        """Bytes of this head, or since the last piece of a body."""
        self._went_on = False
        """Whether in the bytes just fed a head came to its end, or a piece of a body came."""
        self._declared: int | None = None
        self._received = 0
        """Bytes of this request's body, said (None: not looked at yet) and come."""
        self._waiting: deque[int] = deque()
        """Bytes of the heads in the pipeline, newest first as there."""
        self._is_of_proxy = False
        self._clients: deque[str | None] = deque()
        """Behind a proxy: for whom the requests under way are counted, oldest first."""
        self._refusal: PerennialError | None = None
        self._is_deaf = False
        """Whether what comes is thrown away."""
        self._last_words = b""
        self._left = 0
        """Bytes that are still thrown away; 0: not leaving yet."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come: it owes a head."""
        super().connection_made(transport)
        self._delivery = Delivery(transport, self._limits.send_idle_s, self._limits.send_min_rate)
        descriptor = transport.get_extra_info("socket").fileno()
        try:
            self._is_of_proxy = self._all.enter(self, self.client[0] if self.client else None, descriptor)
        except TooManyConnections as error:
            self._refuse(error)
        else:
            self._until = self.loop.time() + self._limits.head_s

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._all.leave(self)
        while self._clients:
            self._give(self._clients.popleft())
        super().connection_lost(exc)

    # What comes

    def data_received(self, data: bytes) -> None:
        """Bytes have come; those of one head at most are parsed before it is looked whether they belong to one."""
        if self._is_deaf:
            self._throw_away(len(data))
            return
        if len(data) + self._fed <= self._most or len(data) <= self._body_left():
            self._feed(data)
            return
        rest = memoryview(data)
        while rest and not self._is_deaf:
            room = max(1, self._most - self._fed)
            self._feed(rest[:room])
            rest = rest[room:]

    def _feed(self, piece: bytes | memoryview) -> None:
        self._went_on = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # Answered as if he had not asked; but what follows a CONNECT or an upgrade is no HTTP.
            self.cycle.keep_alive = False
            self._is_deaf = True
        except httptools.HttpParserCallbackError:
            self._refuse(self._refusal or BadRequest("The request's target cannot be read."))
        except httptools.HttpParserError as error:
            self._refuse(BadRequest(f"This is no HTTP request: {error}."))
        else:
            self._fed = 0 if self._went_on else self._fed + len(piece)
            if self._fed >= self._most:
                what = "head of a request" if self._in_head else "framing or trailer of a body"
                self._refuse(
                    HeadTooLarge(f"The {what} may have {self._most} bytes. Send fewer or shorter fields.")
                )

    def _body_left(self) -> int:
        """Bytes that are still to come of a body whose length was declared."""
        if self._in_head or self.cycle is None:
            return 0
        if self._declared is None:
            lengths = [value for name, value in self.scope["headers"] if name == b"content-length"]
            self._declared = int(lengths[0]) if lengths else 0
        return self._declared - self._received

    def _throw_away(self, size: int) -> None:
        if not self._left:  # an answer is still under way
            self.flow.pause_reading()
            return
        self._left -= size
        if self._left <= 0:
            self.transport.close()

    def on_message_begin(self) -> None:
        """The first byte of a request, on a kept connection too."""
        if len(self.pipeline) >= self._limits.max_pipelined and self._is_answering():
            self._stop(
                TooManyRequests(
                    f"{len(self.pipeline)} requests of this connection wait: await their answers."
                )
            )
        self._in_head = True
        self._fed = self._received = 0
        self._declared = None
        if self._until != math.inf and not self._is_new:
            self._until = self.loop.time() + self._limits.head_s
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """All of a head has come: it is answered, or waits for answers before it."""
        self._in_head = self._is_new = False
        self._went_on = True
        if len(self.headers) > self._limits.max_headers:
            most = self._limits.max_headers
            self._stop(HeadTooLarge(f"A request may have {most} header fields. Send fewer."))
        self._check_form()
        is_waiting = self._is_answering()
        if is_waiting:
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if sum(self._waiting) + size > self._most:
                self._stop(
                    TooManyRequests("Too many bytes of requests wait on this connection: await the answers.")
                )
        if self._is_of_proxy:
            self._clients.append(self._taken())
        super().on_headers_complete()
        self.headers = []  # where trailers go: nobody here has asked for one
        if is_waiting:
            self._waiting.appendleft(size)
        self._until = math.inf

    def _check_form(self) -> None:
        """Refuse heads that the parser takes and that a proxy might read in another way."""
        version, names = self.parser.get_http_version(), {name for name, _ in self.headers}
        if version not in ("1.0", "1.1"):
            self._stop(BadRequest("Send the request as HTTP/1.1."))
        if version == "1.1" and b"host" not in names:
            self._stop(BadRequest("The request has no Host header. Send one."))
        if version == "1.0" and b"transfer-encoding" in names:
            self._stop(
                BadRequest(
                    "HTTP/1.0 has no Transfer-Encoding: send the request as HTTP/1.1, or with Content-Length."
                )
            )

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._went_on = True
        self._received += len(body)
        super().on_body(body)

    def _should_upgrade(self) -> bool:
        return False

    def _taken(self) -> str | None:
        """Count a request for the client that a proxy names."""
        client = self._all.proxies.client(
            [value for name, value in self.headers if name == b"x-forwarded-for"]
        )
        if client is None:
            return None
        try:
            self._all.take(counted(client))
        except TooManyConnections as error:
            self._stop(error)
        return counted(client)

    def _give(self, client: str | None) -> None:
        if client is not None:
            self._all.give(client)

    # What goes

    def on_response_complete(self) -> None:
        """An answer has been written: the next request's turn, the reason of a refusal, or a wait for a request."""
        self.server_state.total_requests += 1
        if self._clients:
            self._give(self._clients.popleft())
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._waiting.pop()
            self._start_asgi_task(*self.pipeline.pop())
        elif self._last_words:
            self._say(self._last_words)
        else:
            kept = self._limits.head_s if self._in_head else self._limits.keep_alive_s
            self._until = self.loop.time() + kept
        if not self._is_deaf:
            self.flow.resume_reading()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop(self, error: PerennialError) -> None:
        """Refuse from within the parser, which must not go on."""
        self._refusal = error
        raise error

    def _refuse(self, error: PerennialError) -> None:
        """Parse nothing more, and tell why when all answers before have been written."""
        self._is_deaf = True
        words = self._answer(error)
        if not self._is_answering():
            self._say(words)
            return
        in_body = self.cycle.more_body and not self._in_head
        if in_body and not self.pipeline:
            # The request that is being answered is the broken one: its handler learns that the client is gone.
            if self.cycle.response_started:
                self.transport.close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._say(words)
            return
        if in_body:
            self.pipeline.popleft()
            self._waiting.popleft()
        self._last_words = words
        self.flow.pause_reading()

    def _answer(self, error: PerennialError) -> bytes:
        status, named, body = problems.of_error(error)
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
        headers += [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
        lines = [
            name + b": " + value for name, value in [*self.server_state.default_headers, *secured(headers)]
        ]
        return STATUS_LINE[status] + b"\r\n".join(lines) + b"\r\n\r\n" + body

    def _say(self, words: bytes) -> None:
        """Write the last words of this connection, and close it once they have been read."""
        self.transport.write(words)
        if not self._all.may_stay(self) or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self._left = LINGER_BYTES
        self._until = self.loop.time() + LINGER_S
        self.flow.resume_reading()

    # Time

    def look(self, now: float) -> None:
        """Do what is due (`api.connections`)."""
        if now >= self._until:
            self._overdue()
        elif self._until == math.inf or self.transport.is_closing():
            if self._delivery.stalled(now):
                self._delivery.reset()
        else:
            self._delivery.pause()

    def gives_way(self) -> bool:
        """End at once, unless a request is being answered (`api.connections`)."""
        if self._until == math.inf:
            return False
        self._delivery.reset()
        return True

    def _overdue(self) -> None:
        self._until = math.inf
        if self._in_head and not self._is_deaf:
            seconds = self._limits.head_s
            self._refuse(HeadTimeout(f"The head of the request was not complete after {seconds:g} s."))
        else:
            self.transport.close()
