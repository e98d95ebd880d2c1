"""POST requests to addresses named by users, limited to allowed networks and to a total time.

The host is resolved once, and exactly a checked address is connected to (`perennial.public_address`);
the name is still used for TLS and Host. Redirects, proxies of the environment, cookies and
compressed responses are not supported. One deadline holds for the whole exchange, byte by byte.
"""

import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpcore2

from perennial.public_address import (
    AddressRefused,
    HttpRequestTarget,
    Network,
    Resolver,
    resolve_addresses_and_require_allowed,
)

ANSWER_BYTES = 4096
"""Maximum number of bytes read from a response's body."""
_ADDRESSES = 4
"""Maximum number of addresses of a name that are tried, one after another."""


class NoHttpResponseError(Exception):
    """Error: an HTTP request got no response; the message says why."""


@dataclass(frozen=True)
class HttpResponseOfWebhookReceiver:
    """Response of a webhook's receiver: the status, and the first bytes of the body as text."""

    status: int
    body: str


@dataclass(frozen=True)
class GuardedRequestSettings:
    """Settings for HTTP requests to addresses that users chose: allowed networks and time limit.

    Attributes:
        allow: networks that are allowed besides the public Internet.
        seconds: limit for one whole request.
        resolve: function that returns the addresses of a name; None for the system's resolver.
    """

    allow: Sequence[Network]
    seconds: float
    resolve: Resolver | None = None


def post_guarded_request(
    target: HttpRequestTarget, headers: Mapping[str, str], body: bytes, way: GuardedRequestSettings
) -> HttpResponseOfWebhookReceiver:
    """Send an HTTP POST request to a checked address, and read the response.

    Raises:
        NoHttpResponseError: the address is refused, or no whole response comes in time.
    """
    deadline = time.monotonic() + way.seconds
    url = httpcore2.URL(
        scheme=target.scheme.encode(),
        host=target.host.encode(),
        port=target.port,
        target=target.path.encode(),
    )
    all_headers = {
        "Host": target.host_header,
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    pool = httpcore2.ConnectionPool(
        ssl_context=_load_tls_context() if target.scheme == "https" else None,
        network_backend=_CheckedAddressBackend(target, way, deadline),
        # A stream ends at its request's deadline, so no other request may use its connection.
        max_keepalive_connections=0,
    )
    try:
        with (
            pool,
            pool.stream("POST", url, headers=list(all_headers.items()), content=body) as response,
        ):
            return HttpResponseOfWebhookReceiver(
                response.status, _read_first_response_bytes(response.iter_stream())
            )
    except AddressRefused as refused:
        raise NoHttpResponseError(str(refused)) from None
    except TimeoutError:
        raise NoHttpResponseError(f"No whole answer came within {way.seconds:.0f} s.") from None
    except httpcore2.ProtocolError as error:
        # The message may quote what the receiver sent, at any length.
        problem = str(error)[:200] or "it closed the connection"
        raise NoHttpResponseError(f"The receiver speaks no HTTP: {problem.rstrip('.')}.") from None
    except OSError as error:
        raise NoHttpResponseError(_describe_network_error(error)) from None


def _read_first_response_bytes(pieces: Iterable[bytes]) -> str:
    """Return the first bytes of a response's body as text; the rest is never read."""
    content = b""
    for piece in pieces:
        content += piece
        # A receiver could send without end.
        if len(content) >= ANSWER_BYTES:
            break
    return (
        # PostgreSQL stores no NUL in a text.
        content[:ANSWER_BYTES].decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    )


def _describe_network_error(error: OSError) -> str:
    """Return a sentence about why a connection or its TLS failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"The receiver's certificate is not trusted: {error.verify_message}."
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'the connection ended'}."
    return f"The receiver cannot be reached: {error.strerror or 'the connection ended'}."


# Made once, since it reads all certificates of the system.
@cache
def _load_tls_context() -> ssl.SSLContext:
    """Return a TLS context that trusts the system's certificates, or those that SSL_CERT_FILE
    names.
    """
    return httpcore2.default_ssl_context()


class _CheckedAddressBackend(httpcore2.NetworkBackend):
    """Network backend that connects to a checked IP address, whatever host name it is given."""

    def __init__(
        self, target: HttpRequestTarget, way: GuardedRequestSettings, deadline: float
    ) -> None:
        self._target, self._way, self._deadline = target, way, deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "_DeadlineStream":
        del host, port, timeout, local_address, socket_options
        failed = OSError()
        for address in resolve_addresses_and_require_allowed(
            self._target, self._way.allow, self._way.resolve
        )[:_ADDRESSES]:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                # Each call gets what is left of the whole: slow bytes gain a receiver no time.
                connection.settimeout(_require_seconds_left(self._deadline))
                connection.connect((str(address), self._target.port))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return _DeadlineStream(connection, self._deadline)
            # The deadline is that of all addresses, so no time is left for the next one.
            except TimeoutError:
                connection.close()
                raise
            # Another address of the same host may still accept the connection.
            except OSError as error:
                connection.close()
                failed = error
        raise failed


class _DeadlineStream(httpcore2.NetworkStream):
    """A network connection whose reads and writes fail after a deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = connection, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._socket.settimeout(_require_seconds_left(self._deadline))
        return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        unsent = memoryview(buffer)
        try:
            while unsent:
                self._socket.settimeout(_require_seconds_left(self._deadline))
                unsent = unsent[self._socket.send(unsent) :]
        # A TimeoutError is an OSError too, and must not become a WriteError.
        except TimeoutError:
            raise
        except OSError as error:  # the receiver may have responded before it had read everything
            raise httpcore2.WriteError(str(error)) from error

    def close(self) -> None:
        self._socket.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> "_DeadlineStream":
        try:
            self._socket.settimeout(_require_seconds_left(self._deadline))
            return _DeadlineStream(
                ssl_context.wrap_socket(self._socket, server_hostname=server_hostname),
                self._deadline,
            )
        except OSError:
            self.close()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._socket if info == "socket" else None


def _require_seconds_left(deadline: float) -> float:
    """Return the number of seconds until the deadline; raise an error after it.

    Raises:
        TimeoutError: the deadline has passed.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
