"""A connection of the HTTP server with limits on what clients without a key can consume.

By itself, uvicorn waits for a head without limit and buffers as much of it as is sent. It does not
count connections, and waits indefinitely for a client that does not read. This protocol counts the
bytes of a head before they are parsed. A connection without a response in progress has one
deadline, and a client must read what it is sent (`api.server.delivery`). Bodies have limits of their own
(`api.uploads`, `api.authentication.guard`). A refused client receives the reason, after the responses to its
earlier requests, before its connection is closed. Start it with `uvicorn --http
api.server.connection:LimitedHttpConnection`.
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
from api.server.connections import ConnectionLimiter
from api.server.delivery import SlowReaderDetector
from api.server.headers import add_security_headers
from api.server.joined_writes import HeadJoiningTransport
from api.server.proxies import derive_address_counting_key
from core.errors import (
    BadRequest,
    PerennialError,
    RequestHeadTimeout,
    RequestHeadTooLarge,
    TooManyConnections,
    TooManyRequests,
)
from core.settings import Settings

LINGER_S = 2.0
LINGER_BYTES = 1 << 20
"""Limits in seconds and bytes for reading from a refused client. If the connection were closed at
once, the operating system would discard the response that the client has not read yet.
"""


# uvicorn makes a protocol for each connection, and the state of the server is all that they share.
@functools.lru_cache(4)
def get_connection_limiter_of_server(server: ServerState) -> ConnectionLimiter:
    """Return the one limiter of a server's connections, with the limits from the environment."""
    return ConnectionLimiter(Settings(), asyncio.get_running_loop())


class LimitedHttpConnection(HttpToolsProtocol):
    """uvicorn's HTTP connection with limits on time, size and number of requests."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Set up the limits of a new connection."""
        super().__init__(config, server_state, app_state, _loop)
        self._all = get_connection_limiter_of_server(server_state)
        self._limits = self._all.settings
        self._most = self._limits.max_head_bytes
        self._delivery: SlowReaderDetector = None  # type: ignore[assignment]
        self._until = math.inf
        """Deadline on the event loop's clock; infinite while a response is in progress."""
        self._is_new = True
        """True until the first head is complete. The time limit for the first head runs from the
        start of the connection, whatever stray bytes precede it.
        """
        self._in_head = False
        self._fed = 0
        """Bytes of this head, or since the last piece of a body."""
        self._went_on = False
        """True if the bytes just parsed completed a head or contained a piece of a body."""
        self._declared: int | None = None
        self._received = 0
        """Bytes of this request's body: declared (None: not determined yet) and received."""
        self._waiting: deque[int] = deque()
        """Sizes in bytes of the heads in the pipeline, newest first, in the pipeline's order."""
        self._is_of_proxy = False
        self._clients: deque[str | None] = deque()
        """Behind a proxy: the clients of the requests in progress, oldest first."""
        self._refusal: PerennialError | None = None
        self._is_deaf = False
        """True while received bytes are discarded."""
        self._last_words = b""
        self._left = 0
        """Bytes still to be discarded before closing; 0: the connection is not closing yet."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register a new connection and start the time limit for its first head."""
        super().connection_made(transport)
        self.transport = HeadJoiningTransport(transport, self.loop)  # type: ignore[assignment]
        self._delivery = SlowReaderDetector(
            transport, self._limits.send_idle_s, self._limits.send_min_rate
        )
        descriptor = transport.get_extra_info("socket").fileno()
        try:
            self._is_of_proxy = self._all.register_connection(
                self, self.client[0] if self.client else None, descriptor
            )
        except TooManyConnections as error:
            self._refuse_request_and_close(error)
        else:
            self._until = self.loop.time() + self._limits.head_s

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's place and the requests counted for its clients."""
        self._all.remove_connection(self)
        while self._clients:
            self._release_client_slot(self._clients.popleft())
        super().connection_lost(exc)

    # Receiving

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, in pieces of at most a head's size unless they belong to a body."""
        if self._is_deaf:
            self._discard_received_bytes(len(data))
            return
        # Only heads are limited: bytes that certainly belong to a body need no splitting.
        if len(data) + self._fed <= self._most or len(data) <= self.count_missing_body_bytes():
            self._feed_http_parser(data)
            return
        remaining = memoryview(data)
        while remaining and not self._is_deaf:
            room = max(1, self._most - self._fed)
            self._feed_http_parser(remaining[:room])
            remaining = remaining[room:]

    def _feed_http_parser(self, piece: bytes | memoryview) -> None:
        self._went_on = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # The request is answered as if no upgrade had been requested, but bytes after a CONNECT
            # or an upgrade are not HTTP.
            self.cycle.keep_alive = False
            self._is_deaf = True
        # The parser wraps what its callbacks raise; `_refusal` has the error itself.
        except httptools.HttpParserCallbackError:
            self._refuse_request_and_close(
                self._refusal or BadRequest("The request's target cannot be read.")
            )
        except httptools.HttpParserError as error:
            self._refuse_request_and_close(BadRequest(f"This is no HTTP request: {error}."))
        else:
            self._fed = 0 if self._went_on else self._fed + len(piece)
            if self._fed >= self._most:
                # Sizes of chunks and trailers are no body, and could go on without end.
                part = "head of a request" if self._in_head else "framing or trailer of a body"
                self._refuse_request_and_close(
                    RequestHeadTooLarge(
                        f"The {part} may have {self._most} bytes. Send fewer or shorter fields."
                    )
                )

    def count_missing_body_bytes(self) -> int:
        """Return the bytes still expected of a body with a declared length."""
        if self._in_head or self.cycle is None:
            return 0
        if self._declared is None:
            lengths = [value for name, value in self.scope["headers"] if name == b"content-length"]
            # The parser has refused repeated lengths and those that are no numbers.
            self._declared = int(lengths[0]) if lengths else 0
        return self._declared - self._received

    def _discard_received_bytes(self, size: int) -> None:
        # A response is still in progress: leave the bytes unread until it is complete.
        if not self._left:
            self.flow.pause_reading()
            return
        self._left -= size
        if self._left <= 0:
            self.transport.close()

    def on_message_begin(self) -> None:
        """Start counting a request at its first byte, also on a kept connection."""
        # Waiting requests take memory, and their keys are checked only when their turn comes.
        if len(self.pipeline) >= self._limits.max_pipelined and self._is_response_in_progress():
            self._raise_refusal_from_parser_callback(
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
        """Check a complete head, then answer the request or queue it behind earlier ones."""
        self._in_head = self._is_new = False
        self._went_on = True
        if len(self.headers) > self._limits.max_headers:
            max_headers = self._limits.max_headers
            self._raise_refusal_from_parser_callback(
                RequestHeadTooLarge(f"A request may have {max_headers} header fields. Send fewer.")
            )
        self._refuse_ambiguous_head()
        is_waiting = self._is_response_in_progress()
        if is_waiting:
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if sum(self._waiting) + size > self._most:
                self._raise_refusal_from_parser_callback(
                    TooManyRequests(
                        "Too many bytes of requests wait on this connection: await the answers."
                    )
                )
        if self._is_of_proxy:
            self._clients.append(self._acquire_client_slot_or_refuse())
        super().on_headers_complete()
        # The parser would append trailers here: nothing uses them.
        self.headers = []
        if is_waiting:
            self._waiting.appendleft(size)
        self._until = math.inf

    def _refuse_ambiguous_head(self) -> None:
        """Refuse heads that the parser accepts and that a proxy might read differently."""
        version, names = self.parser.get_http_version(), {name for name, _ in self.headers}
        if version not in ("1.0", "1.1"):
            self._raise_refusal_from_parser_callback(BadRequest("Send the request as HTTP/1.1."))
        if version == "1.1" and b"host" not in names:
            self._raise_refusal_from_parser_callback(
                BadRequest("The request has no Host header. Send one.")
            )
        # A proxy that ignores the header would see the body end elsewhere, and another request.
        if version == "1.0" and b"transfer-encoding" in names:
            self._raise_refusal_from_parser_callback(
                BadRequest(
                    "HTTP/1.0 has no Transfer-Encoding: send the request as HTTP/1.1, or with "
                    "Content-Length."
                )
            )

    def on_body(self, body: bytes) -> None:
        """Count and pass on a piece of a body."""
        self._went_on = True
        self._received += len(body)
        super().on_body(body)

    # Upgrades are not supported: a request for one is answered as plain HTTP.
    def _should_upgrade(self) -> bool:
        return False

    def _acquire_client_slot_or_refuse(self) -> str | None:
        """Count a request for the client that a proxy names, and return the client's key."""
        client = self._all.proxies.find_client_address(
            [value for name, value in self.headers if name == b"x-forwarded-for"]
        )
        if client is None:
            return None
        try:
            self._all.acquire_address_slot_or_refuse(derive_address_counting_key(client))
        except TooManyConnections as error:
            self._raise_refusal_from_parser_callback(error)
        return derive_address_counting_key(client)

    def _release_client_slot(self, client: str | None) -> None:
        if client is not None:
            self._all.release_address_slot(client)

    # Sending

    def on_response_complete(self) -> None:
        """Continue after a response: start the next queued request, or send a waiting refusal."""
        # This replaces uvicorn's method, which counts for --limit-max-requests.
        self.server_state.total_requests += 1
        # A response follows the request with which it was counted, so the oldest client is done.
        if self._clients:
            self._release_client_slot(self._clients.popleft())
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._waiting.pop()
            self._start_asgi_task(*self.pipeline.pop())
        elif self._last_words:
            self._write_final_response(self._last_words)
        else:
            # A head that has begun in the meantime has its own limit, as on a new connection.
            allowed_s = self._limits.head_s if self._in_head else self._limits.keep_alive_s
            self._until = self.loop.time() + allowed_s
        if not self._is_deaf:
            self.flow.resume_reading()

    def _is_response_in_progress(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _raise_refusal_from_parser_callback(self, error: PerennialError) -> None:
        """Refuse the request from within a parser callback, so that parsing stops."""
        self._refusal = error
        raise error

    def _refuse_request_and_close(self, error: PerennialError) -> None:
        """Stop parsing, and send the reason after all earlier responses have been written."""
        self._is_deaf = True
        words = self._encode_problem_response(error)
        if not self._is_response_in_progress():
            self._write_final_response(words)
            return
        in_body = self.cycle.more_body and not self._in_head
        if in_body and not self.pipeline:
            # The request in progress is itself malformed: its handler sees a disconnected client.
            if self.cycle.response_started:
                self.transport.close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._write_final_response(words)
            return
        if in_body:
            # The newest request is the malformed one: it gets the reason and must not be processed.
            self.pipeline.popleft()
            self._waiting.popleft()
        self._last_words = words
        self.flow.pause_reading()

    def _encode_problem_response(self, error: PerennialError) -> bytes:
        status, named, body = problems.convert_error_to_response(error)
        headers = [
            (name.lower().encode(), value.encode("latin-1")) for name, value in named.items()
        ]
        headers += [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
        header_lines = [
            name + b": " + value
            for name, value in [*self.server_state.default_headers, *add_security_headers(headers)]
        ]
        return STATUS_LINE[status] + b"\r\n".join(header_lines) + b"\r\n\r\n" + body

    def _write_final_response(self, words: bytes) -> None:
        """Write the final response of this connection, and close it once the client has read it."""
        self.transport.write(words)
        if not self._all.keep_refused_connection_open(self) or not self.transport.can_write_eof():
            self.transport.close()
            return
        # Half-closed, so that the client sees the end while what it still sends is read.
        self.transport.write_eof()
        self._left = LINGER_BYTES
        self._until = self.loop.time() + LINGER_S
        self.flow.resume_reading()

    # Timeouts

    def check_connection_deadline(self, now: float) -> None:
        """Check the deadline and the client's reading speed at this time (`api.server.connections`)."""
        if now >= self._until:
            self._end_overdue_connection()
        # Something waits to be read only during a response, or while the connection is closing.
        elif self._until == math.inf or self.transport.is_closing():
            if self._delivery.record_progress_and_detect_stall(now):
                self._delivery.abort_connection()
        else:
            self._delivery.reset_stall_timing()

    def abort_connection_if_idle(self) -> bool:
        """Abort the connection unless a request is in progress; return True if aborted
        (`api.server.connections`).
        """
        if self._until == math.inf:
            return False
        self._delivery.abort_connection()
        return True

    def _end_overdue_connection(self) -> None:
        self._until = math.inf
        if self._in_head and not self._is_deaf:
            seconds = self._limits.head_s
            self._refuse_request_and_close(
                RequestHeadTimeout(f"The head of the request was not complete after {seconds:g} s.")
            )
        else:
            self.transport.close()
