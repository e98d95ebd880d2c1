"""Requests to URLs that a list names, which can lead nowhere inside.

A host is resolved once, and exactly an address that was checked is dialled; the name stays for TLS and Host. A redirect
is followed only from https to https, and checked in the same way. No proxy of the environment is used, no cookie kept,
nothing unpacked. A request has one deadline, and reads no more than it may.
"""

import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import httpcore2

from perennial.public_address import (
    IPAddress,
    Refused,
    Resolver,
    Target,
    embedded,
    is_metadata_name,
    lookup,
    not_public,
    target_of,
)

MAX_REDIRECTS = 5
MAX_URL_CHARS = 8000
"""Signed URLs of clouds are long."""
SECONDS = 120.0
"""For one request, all in all."""
_ADDRESSES = 4
"""Of a name that are tried, one after the other."""
_REDIRECTS = (301, 302, 303, 307, 308)
_ALWAYS_REFUSED = (ipaddress.ip_address("168.63.129.16"),)
"""Inside of every machine of Azure."""


class Unfetchable(Exception):
    """A URL that gives no image; the message is the end of a sentence.

    Attributes:
        is_passing: it may be different soon, as where nobody answers.
    """

    def __init__(self, message: str, is_passing: bool = False) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class Head(NamedTuple):
    """Head of a body, as a server gives it: its bytes, None where unsaid, and its ETag or time, or an empty text."""

    size: int | None
    version: str


class Fetcher:
    """Fetcher of URLs.

    Args:
        allow_private: private and loopback addresses are dialled, too; those of metadata services never are.
        resolve: the system's resolver when None.
        seconds: for one request, all in all.
    """

    def __init__(
        self, allow_private: bool = False, resolve: Resolver | None = None, seconds: float = SECONDS
    ) -> None:
        self._allow_private, self._resolve, self._seconds = allow_private, resolve or lookup, seconds

    def head(self, url: str) -> Head:
        """Return what there is at a URL. Raises Unfetchable."""
        with self._answered("HEAD", url) as answer:
            return _head_of(answer)

    def get(self, url: str, most: int) -> tuple[Head, bytes]:
        """Return what there is at a URL, and its first `most` bytes. Raises Unfetchable."""
        with self._answered("GET", url) as answer:
            pieces, left = [], most
            for piece in answer.iter_stream():
                pieces.append(piece[:left])
                left -= len(pieces[-1])
                if not left:
                    break
            return _head_of(answer), b"".join(pieces)

    @contextmanager
    def _answered(self, method: str, url: str) -> Iterator[Any]:
        """The answer of 200, after redirects."""
        deadline = time.monotonic() + self._seconds
        for _ in range(MAX_REDIRECTS + 1):
            target = https_target(url)
            try:
                with (
                    self._pool(target, deadline) as pool,
                    pool.stream(
                        method, _url(target), headers=[("Host", target.host_header), *_HEADERS]
                    ) as answer,
                ):
                    location = _header(answer, b"location")
                    if answer.status not in _REDIRECTS or not location:
                        _check(answer)
                        yield answer
                        return
            except TimeoutError:
                raise Unfetchable(f"gives no whole answer within {self._seconds:g} s", True) from None
            except httpcore2.ProtocolError as error:
                raise Unfetchable(f"speaks no HTTP: {str(error)[:200].rstrip('.')}") from None
            except ssl.SSLCertVerificationError as error:
                raise Unfetchable(f"has a certificate that is not trusted: {error.verify_message}") from None
            except OSError as error:
                raise Unfetchable(
                    f"cannot be reached: {error.strerror or 'the connection ended'}", True
                ) from None
            url = _following(target, location)
        raise Unfetchable(f"redirects more than {MAX_REDIRECTS} times")

    def _pool(self, target: Target, deadline: float) -> httpcore2.ConnectionPool:
        return httpcore2.ConnectionPool(
            ssl_context=self._trust,
            network_backend=_Backend(target, self._addresses(target), deadline),
            max_keepalive_connections=0,
        )

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """The system's certificates, or those that SSL_CERT_FILE names."""
        return httpcore2.default_ssl_context()

    def _addresses(self, target: Target) -> list[IPAddress]:
        """The addresses of a target, each of which may be dialled. Raises Unfetchable."""
        if is_metadata_name(target.host):
            raise Unfetchable(f"leads to {target.host}, a cloud's own service for its machines")
        for address in (found := self._resolved(target)):
            why = not_public(address)
            if why is not None and not (self._allow_private and _is_private(address)):
                named = "" if str(address) == target.host else f"{target.host} is {address}: "
                hint = "; --allow-private allows it" if _is_private(address) else ""
                raise Unfetchable(f"leads to a place that is not public: {named}{why}{hint}")
        return found

    def _resolved(self, target: Target) -> list[IPAddress]:
        try:
            return [ipaddress.ip_address(target.host)]
        except ValueError:
            pass  # a name
        try:
            found = [ipaddress.ip_address(text) for text in self._resolve(target.host, target.port)]
        except (OSError, ValueError) as error:
            words = getattr(error, "strerror", None) or error
            raise Unfetchable(f"leads to {target.host}, which has no address: {words}", True) from None
        if not found:
            raise Unfetchable(f"leads to {target.host}, which has no address", True)
        return found


def https_target(url: str) -> Target:
    """Parse a URL. Raises Unfetchable unless it is `https://host[:port][/path][?query]` in its plainest form."""
    if not url.lower().startswith("https://"):
        scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,20}:", url)
        raise Unfetchable(f"is of {scheme[0] if scheme else 'no scheme'}; only https:// is fetched")
    try:
        return target_of(url, MAX_URL_CHARS)
    except Refused:
        raise Unfetchable(
            "is no URL in its plain form: https://host/path in ASCII, other characters as %xx, without a user name "
            f"and without #, at most {MAX_URL_CHARS:,} characters"
        ) from None


_HEADERS = (
    ("Accept", "image/*"),
    ("Accept-Encoding", "identity"),
    ("Connection", "close"),
    ("User-Agent", "perennial"),
)


def _url(target: Target) -> httpcore2.URL:
    return httpcore2.URL(
        scheme=b"https", host=target.host.encode(), port=target.port, target=target.path.encode()
    )


def _following(target: Target, location: str) -> str:
    """Return where a redirect leads, as an absolute URL: only the plain forms are followed. Raises Unfetchable."""
    if location.startswith("/") and not location.startswith("//"):
        return f"https://{target.host_header}{location}"
    try:
        https_target(location)
    except Unfetchable as error:
        raise Unfetchable(f"redirects to what {error}") from None
    return location


def _check(answer: Any) -> None:
    """Raise Unfetchable for an answer that has no image."""
    if answer.status != 200:
        is_passing = answer.status in (408, 425, 429) or answer.status >= 500
        raise Unfetchable(f"answers with status {answer.status}", is_passing)
    kind = _header(answer, b"content-type").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml", "application/json"):
        raise Unfetchable(f"is {kind}, no image")
    packed = _header(answer, b"content-encoding").lower()
    if packed not in ("", "identity"):
        raise Unfetchable(f"is packed by {packed[:40]!r}, which was not asked for")


def _header(answer: Any, name: bytes) -> str:
    found = [value for key, value in answer.headers if key.lower() == name]
    return found[0].decode("latin-1") if found else ""


def _head_of(answer: Any) -> Head:
    length = _header(answer, b"content-length")
    version = _header(answer, b"etag") or _header(answer, b"last-modified")
    return Head(int(length) if re.fullmatch(r"[0-9]{1,15}", length) else None, version[:500])


def _is_private(address: IPAddress) -> bool:
    """Return whether an address is one of a private network, or of this machine: what may be allowed."""
    inner = embedded(address) or address
    return (inner.is_private or inner.is_loopback) and not (
        inner.is_link_local or inner.is_multicast or inner.is_unspecified or inner in _ALWAYS_REFUSED
    )


class _Backend(httpcore2.NetworkBackend):
    """Dials the addresses that were checked, whatever name it is asked for."""

    def __init__(self, target: Target, addresses: list[IPAddress], deadline: float) -> None:
        self._target, self._addresses, self._deadline = target, addresses, deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "_Stream":
        """Connect to the first address that answers."""
        del host, port, timeout, local_address, socket_options
        failed = OSError()
        for address in self._addresses[:_ADDRESSES]:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.settimeout(_left(self._deadline))
                connection.connect((str(address), self._target.port))
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
        """The next bytes."""
        self._socket.settimeout(_left(self._deadline))
        return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        self._socket.settimeout(_left(self._deadline))
        self._socket.sendall(buffer)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Stream":
        """Speak TLS from here on."""
        try:
            self._socket.settimeout(_left(self._deadline))
            return _Stream(
                ssl_context.wrap_socket(self._socket, server_hostname=server_hostname), self._deadline
            )
        except OSError:
            self.close()
            raise

    def get_extra_info(self, info: str) -> Any:
        """The socket, where it is asked for."""
        return self._socket if info == "socket" else None


def _left(deadline: float) -> float:
    """Seconds that are left. Raises TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
