"""HTTPS requests to URLs from a list, protected against access to internal addresses.

A host is resolved once, and only a checked address is connected to; TLS and Host keep the name. A
redirect is followed only from https to https, after the same checks. Environment proxies and
cookies are not used, and nothing is decompressed. Each request has one deadline and a size limit.
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
    AddressRefused,
    HttpRequestTarget,
    IPAddress,
    Resolver,
    describe_non_public_address,
    find_embedded_ipv4,
    is_cloud_metadata_name,
    parse_url_target,
    resolve_host_name,
)

MAX_REDIRECTS = 5
MAX_URL_CHARS = 8000
"""Maximum characters of a URL; signed URLs of clouds are long."""
SECONDS = 120.0
"""Maximum total seconds of a request."""
_ADDRESSES = 4
"""Maximum number of a name's addresses to try."""
_REDIRECTS = (301, 302, 303, 307, 308)
_ALWAYS_REFUSED = (ipaddress.ip_address("168.63.129.16"),)
"""Internal address of every Azure machine."""


class UnusableUrl(Exception):
    """An image cannot be fetched from its URL; the message is the end of a sentence.

    Attributes:
        is_passing: True if a later attempt may succeed, for example after a timeout.
    """

    def __init__(self, message: str, is_passing: bool = False) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class RemoteFileSizeAndVersion(NamedTuple):
    """Size and version of an image, from the headers of an HTTP response.

    Attributes:
        size: bytes; None: not declared.
        version: ETag or modification time, or "".
    """

    size: int | None
    version: str


class ImageFetcher:
    """Fetches images from https URLs, and refuses to connect to private addresses.

    Args:
        allow_private: also connect to private and loopback addresses, but never to metadata
            services.
        resolve: resolves a name; None: the system's resolver.
        seconds: maximum total seconds of a request.
    """

    def __init__(
        self, allow_private: bool = False, resolve: Resolver | None = None, seconds: float = SECONDS
    ) -> None:
        self._allow_private, self._resolve, self._seconds = (
            allow_private,
            resolve or resolve_host_name,
            seconds,
        )

    def fetch_size_and_version(self, url: str) -> RemoteFileSizeAndVersion:
        """Return size and version of the image at a URL, by a HEAD request. Raises UnusableUrl."""
        with self._open_response("HEAD", url) as response:
            return _parse_size_and_version_headers(response)

    def fetch_size_version_and_first_bytes(
        self, url: str, max_bytes: int
    ) -> tuple[RemoteFileSizeAndVersion, bytes]:
        """Return size and version of the image at a URL, and its first `max_bytes` bytes. Raises
        UnusableUrl.
        """
        with self._open_response("GET", url) as response:
            pieces, bytes_left = [], max_bytes
            for piece in response.iter_stream():
                pieces.append(piece[:bytes_left])
                bytes_left -= len(pieces[-1])
                if not bytes_left:
                    break
            return _parse_size_and_version_headers(response), b"".join(pieces)

    @contextmanager
    def _open_response(self, method: str, url: str) -> Iterator[Any]:
        """Send a request and yield the response with status 200, after checked redirects."""
        # One deadline for all redirects, since a chain of them could multiply the time.
        deadline = time.monotonic() + self._seconds
        for _ in range(MAX_REDIRECTS + 1):
            # In the loop, because a redirect may lead to an internal address.
            target = parse_https_url(url)
            try:
                with (
                    self._create_pool(target, deadline) as pool,
                    pool.stream(
                        method,
                        _convert_target_to_httpcore_url(target),
                        headers=[("Host", target.host_header), *_HEADERS],
                    ) as response,
                ):
                    location = _get_response_header(response, b"location")
                    if response.status not in _REDIRECTS or not location:
                        _require_image_response(response)
                        yield response
                        return
            # Errors while the caller reads the body arrive here too, at the `yield`.
            except TimeoutError:
                raise UnusableUrl(
                    f"gives no whole answer within {self._seconds:g} s", True
                ) from None
            except httpcore2.ProtocolError as error:
                raise UnusableUrl(f"speaks no HTTP: {str(error)[:200].rstrip('.')}") from None
            except ssl.SSLCertVerificationError as error:
                raise UnusableUrl(
                    f"has a certificate that is not trusted: {error.verify_message}"
                ) from None
            except OSError as error:
                raise UnusableUrl(
                    f"cannot be reached: {error.strerror or 'the connection ended'}", True
                ) from None
            url = _resolve_redirect(target, location)
        raise UnusableUrl(f"redirects more than {MAX_REDIRECTS} times")

    def _create_pool(self, target: HttpRequestTarget, deadline: float) -> httpcore2.ConnectionPool:
        return httpcore2.ConnectionPool(
            ssl_context=self._tls_context,
            # Connects to the addresses checked here: a second look-up could give others.
            network_backend=_CheckedAddressBackend(
                target, self._resolve_and_check_addresses(target), deadline
            ),
            # No connection is reused, since each belongs to one checked target and one deadline.
            max_keepalive_connections=0,
        )

    @cached_property
    def _tls_context(self) -> ssl.SSLContext:
        """TLS context with the system's certificates, or those in SSL_CERT_FILE."""
        return httpcore2.default_ssl_context()

    def _resolve_and_check_addresses(self, target: HttpRequestTarget) -> list[IPAddress]:
        """Resolve a URL's host to addresses that may be connected to. Raises UnusableUrl."""
        # By name as well, because such a service may have an address that --allow-private admits.
        if is_cloud_metadata_name(target.host):
            raise UnusableUrl(f"leads to {target.host}, a cloud's own service for its machines")
        # One internal address refuses the name, even if its other addresses are public.
        for address in (addresses := self._resolve_host(target)):
            why = describe_non_public_address(address)
            if why is not None and not (self._allow_private and _is_private_address(address)):
                named = "" if str(address) == target.host else f"{target.host} is {address}: "
                hint = "; --allow-private allows it" if _is_private_address(address) else ""
                raise UnusableUrl(f"leads to a place that is not public: {named}{why}{hint}")
        return addresses

    def _resolve_host(self, target: HttpRequestTarget) -> list[IPAddress]:
        try:
            return [ipaddress.ip_address(target.host)]
        except ValueError:
            pass  # a name
        try:
            addresses = [
                ipaddress.ip_address(text) for text in self._resolve(target.host, target.port)
            ]
        except (OSError, ValueError) as error:
            words = getattr(error, "strerror", None) or error
            raise UnusableUrl(
                f"leads to {target.host}, which has no address: {words}", True
            ) from None
        if not addresses:
            raise UnusableUrl(f"leads to {target.host}, which has no address", True)
        return addresses


def parse_https_url(url: str) -> HttpRequestTarget:
    """Parse an https URL of the form `https://host[:port][/path][?query]`. Raises UnusableUrl."""
    if not url.lower().startswith("https://"):
        scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,20}:", url)
        raise UnusableUrl(f"is of {scheme[0] if scheme else 'no scheme'}; only https:// is fetched")
    try:
        return parse_url_target(url, MAX_URL_CHARS)
    except AddressRefused:
        raise UnusableUrl(
            "is no URL in its plain form: https://host/path in ASCII, other characters as %xx, "
            "without a user name "
            f"and without #, at most {MAX_URL_CHARS:,} characters"
        ) from None


_HEADERS = (
    ("Accept", "image/*"),
    ("Accept-Encoding", "identity"),
    ("Connection", "close"),
    ("User-Agent", "perennial"),
)


def _convert_target_to_httpcore_url(target: HttpRequestTarget) -> httpcore2.URL:
    return httpcore2.URL(
        scheme=b"https", host=target.host.encode(), port=target.port, target=target.path.encode()
    )


def _resolve_redirect(target: HttpRequestTarget, location: str) -> str:
    """Return the absolute URL that a redirect leads to. Raises UnusableUrl for unsupported forms."""
    # “//host/path” would name another host.
    if location.startswith("/") and not location.startswith("//"):
        return f"https://{target.host_header}{location}"
    try:
        parse_https_url(location)
    except UnusableUrl as error:
        raise UnusableUrl(f"redirects to what {error}") from None
    return location


def _require_image_response(response: Any) -> None:
    """Raise UnusableUrl for an HTTP response that does not contain an image."""
    if response.status != 200:
        is_passing = response.status in (408, 425, 429) or response.status >= 500
        raise UnusableUrl(f"answers with status {response.status}", is_passing)
    kind = _get_response_header(response, b"content-type").partition(";")[0].strip().lower()
    # Pages for logins and errors often come with status 200.
    if kind in ("text/html", "application/xhtml+xml", "application/json"):
        raise UnusableUrl(f"is {kind}, no image")
    packed = _get_response_header(response, b"content-encoding").lower()
    if packed not in ("", "identity"):
        raise UnusableUrl(f"is packed by {packed[:40]!r}, which was not asked for")


def _get_response_header(response: Any, name: bytes) -> str:
    values = [value for key, value in response.headers if key.lower() == name]
    return values[0].decode("latin-1") if values else ""


def _parse_size_and_version_headers(response: Any) -> RemoteFileSizeAndVersion:
    length = _get_response_header(response, b"content-length")
    version = _get_response_header(response, b"etag") or _get_response_header(
        response, b"last-modified"
    )
    # Cut, because a list may have half a million URLs, and each version stays in memory.
    return RemoteFileSizeAndVersion(
        int(length) if re.fullmatch(r"[0-9]{1,15}", length) else None, version[:500]
    )


def _is_private_address(address: IPAddress) -> bool:
    """Return True for an address of a private network or this machine, which an option allows."""
    inner = find_embedded_ipv4(address) or address
    return (inner.is_private or inner.is_loopback) and not (
        inner.is_link_local
        or inner.is_multicast
        or inner.is_unspecified
        or inner in _ALWAYS_REFUSED
    )


class _CheckedAddressBackend(httpcore2.NetworkBackend):
    """Network backend that connects only to addresses checked before, whatever name is requested."""

    def __init__(
        self, target: HttpRequestTarget, addresses: list[IPAddress], deadline: float
    ) -> None:
        self._target, self._addresses, self._deadline = target, addresses, deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "_DeadlineStream":
        """Connect to the first of the checked addresses that responds."""
        del host, port, timeout, local_address, socket_options
        # Try the addresses in order; a timeout ends the request, since the deadline covers all of
        # it.
        failed = OSError()
        for address in self._addresses[:_ADDRESSES]:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.settimeout(_require_seconds_left(self._deadline))
                connection.connect((str(address), self._target.port))
                return _DeadlineStream(connection, self._deadline)
            except TimeoutError:
                connection.close()
                raise
            # Another address of the same host may still accept the connection.
            except OSError as error:
                connection.close()
                failed = error
        raise failed


class _DeadlineStream(httpcore2.NetworkStream):
    """A network connection whose reads and writes end at a deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = connection, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Receive bytes from the connection before the deadline."""
        self._socket.settimeout(_require_seconds_left(self._deadline))
        return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all bytes over the connection before the deadline."""
        self._socket.settimeout(_require_seconds_left(self._deadline))
        self._socket.sendall(buffer)

    def close(self) -> None:
        """Close the network connection."""
        self._socket.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> "_DeadlineStream":
        """Start TLS on the connection and return the encrypted one."""
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
        """Return the connection's socket for "socket", else None."""
        return self._socket if info == "socket" else None


def _require_seconds_left(deadline: float) -> float:
    """Return the seconds left until the deadline. Raises TimeoutError if it has passed."""
    seconds_left = deadline - time.monotonic()
    if seconds_left <= 0:
        raise TimeoutError
    return seconds_left
