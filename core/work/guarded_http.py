"""A POST to an address that somebody else named, which can lead nowhere inside and take no longer than it may.

The host is resolved once, here, and exactly an address that was checked is dialled (`core.public_address`); the name
stays for TLS and Host. Nothing else is done that a client might do: no redirect is followed, no proxy of the
environment used, no cookie kept, nothing unpacked. One deadline holds for all of it, byte by byte.
"""

import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpcore2

from core.public_address import Network, Refused, Resolver, Target, checked

ANSWER_BYTES = 4096
"""Of an answer's body that are read."""
_ADDRESSES = 4
"""Of a name that are tried, one after the other."""


class NotSent(Exception):
    """No answer came; the message says why."""


@dataclass(frozen=True)
class Answer:
    """What a receiver said: the status, and the first bytes of the body as text."""

    status: int
    body: str


@dataclass(frozen=True)
class Way:
    """How requests are sent. `allow`: networks beside the public Internet; `seconds`: for one request, all in all."""

    allow: Sequence[Network]
    seconds: float
    resolve: Resolver | None = None


def post(target: Target, headers: Mapping[str, str], body: bytes, way: Way) -> Answer:
    """Send a body and read the answer.

    Raises:
        NotSent: the address is refused, or nobody answers in time.
    """
    deadline = time.monotonic() + way.seconds
    url = httpcore2.URL(
        scheme=target.scheme.encode(),
        host=target.host.encode(),
        port=target.port,
        target=target.path.encode(),
    )
    given = {"Host": target.host_header, "Content-Length": str(len(body)), "Connection": "close", **headers}
    pool = httpcore2.ConnectionPool(
        ssl_context=_trust() if target.scheme == "https" else None,
        network_backend=_Backend(target, way, deadline),
        max_keepalive_connections=0,
    )
    try:
        with pool, pool.stream("POST", url, headers=list(given.items()), content=body) as answer:
            return Answer(answer.status, _first(answer.iter_stream()))
    except Refused as refused:
        raise NotSent(str(refused)) from None
    except TimeoutError:
        raise NotSent(f"No whole answer came within {way.seconds:.0f} s.") from None
    except httpcore2.ProtocolError as error:
        said = str(error)[:200] or "it closed the connection"
        raise NotSent(f"The receiver speaks no HTTP: {said.rstrip('.')}.") from None
    except OSError as error:
        raise NotSent(_words(error)) from None


def _first(pieces: Iterable[bytes]) -> str:
    """As much of a body as is kept; the rest is never read."""
    kept = b""
    for piece in pieces:
        kept += piece
        if len(kept) >= ANSWER_BYTES:
            break
    return kept[:ANSWER_BYTES].decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _words(error: OSError) -> str:
    """A sentence of a failure of the network or of TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"The receiver's certificate is not trusted: {error.verify_message}."
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'the connection ended'}."
    return f"The receiver cannot be reached: {error.strerror or 'the connection ended'}."


@cache
def _trust() -> ssl.SSLContext:
    """The system's certificates, or those that SSL_CERT_FILE names."""
    return httpcore2.default_ssl_context()


class _Backend(httpcore2.NetworkBackend):
    """Dials an address of the target that was checked, whatever name it is asked for."""

    def __init__(self, target: Target, way: Way, deadline: float) -> None:
        self._target, self._way, self._deadline = target, way, deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "_Stream":
        del host, port, timeout, local_address, socket_options
        failed = OSError()
        for address in checked(self._target, self._way.allow, self._way.resolve)[:_ADDRESSES]:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.settimeout(_left(self._deadline))
                connection.connect((str(address), self._target.port))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return _Stream(connection, self._deadline)
            except TimeoutError:
                connection.close()
                raise
            except OSError as error:
                connection.close()
                failed = error
        raise failed


class _Stream(httpcore2.NetworkStream):
    """A connection of which every read and write ends at the deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = connection, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._socket.settimeout(_left(self._deadline))
        return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        left = memoryview(buffer)
        try:
            while left:
                self._socket.settimeout(_left(self._deadline))
                left = left[self._socket.send(left) :]
        except TimeoutError:
            raise
        except OSError as error:  # it may have answered before it had read everything
            raise httpcore2.WriteError(str(error)) from error

    def close(self) -> None:
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Stream":
        try:
            self._socket.settimeout(_left(self._deadline))
            return _Stream(
                ssl_context.wrap_socket(self._socket, server_hostname=server_hostname), self._deadline
            )
        except OSError:
            self.close()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._socket if info == "socket" else None


def _left(deadline: float) -> float:
    """Seconds that are left. Raises TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
