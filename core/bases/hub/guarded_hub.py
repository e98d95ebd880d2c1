"""Requests to a hub whose responses are not trusted, with limits on redirects and on sizes.

The configured hub (HF_ENDPOINT) is reached as its operator says. Addresses that it names are not
trusted: a redirect must use https, unless the hub itself uses http, and must lead to addresses of
the public Internet. These are resolved once, checked, and connected to as checked. The hub's token
is sent only to the hub.
"""

import ipaddress
import json
import re
import socket
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import httpx2

from perennial.public_address import (
    IPAddress,
    describe_non_public_address,
    is_cloud_metadata_name,
)

MAX_REDIRECTS = 5
MAX_INFO_BYTES = 16 << 20
"""Maximum number of bytes of a hub's description of a repository."""
MAX_ADDRESSES = 4
"""Maximum number of addresses of a name that are tried, one after another."""
MAX_SHOWN = 80
Resolver = Callable[[str, int], list[str]]
"""Function that returns the addresses of a name, as text."""


class HubResponseRefused(Exception):
    """A response of the hub that is refused, such as a redirect elsewhere; the message says why."""


class HubStatusError(Exception):
    """A response of the hub with a status of 400 or above.

    Attributes:
        status: HTTP status.
        code: the hub's own error code, such as RepoNotFound.
    """

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"The Hub answered with status {status}")
        self.status, self.code = status, code


class GuardedHubClient:
    """HTTP client of the Hugging Face Hub that contacts only checked addresses.

    Args:
        endpoint: address of the hub.
        headers: headers sent with every request, wherever it leads.
        token: token sent only to the hub.
        resolve: function that returns the addresses of a name; None for the system's resolver.
    """

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        token: str | None,
        resolve: Resolver | None = None,
    ) -> None:
        self._endpoint, self._hub, self._token = endpoint.rstrip("/"), httpx2.URL(endpoint), token
        # Sizes, ranges and digests are those of the bytes as stored, not compressed.
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._resolve = resolve or _resolve_host_by_system
        self._open = ExitStack()
        # One client follows the environment with its proxies; the other ignores it and connects to
        # checked addresses.
        self._usual = self._open.enter_context(httpx2.Client())
        self._pinned = self._open.enter_context(
            httpx2.Client(trust_env=False, verify=httpx2.create_ssl_context())
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def fetch_json_document(self, path: str, timeout_s: float) -> Any:
        """Request a path of the hub and return the JSON document of the response.

        Raises:
            HubResponseRefused: the response is not JSON, or too long.
            HubStatusError, httpx2.TransportError: there is no successful response.
        """
        with self.open_response("GET", path, {}, timeout_s) as response:
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                # The body is read in chunks, since its announced length is not trusted.
                if len(content) > MAX_INFO_BYTES:
                    raise HubResponseRefused(
                        f"The Hub says more than {MAX_INFO_BYTES} bytes of the repository"
                    )
        try:
            return json.loads(content)
        # Deeply nested JSON exhausts the parser's stack.
        except (ValueError, RecursionError):
            raise HubResponseRefused("The Hub's answer is no JSON") from None

    @contextmanager
    def open_response(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        is_followed: bool = True,
    ) -> Iterator[httpx2.Response]:
        """Send a request to the hub and yield the response, with its body still unread.

        Args:
            path: path at the hub.
            is_followed: if False, a redirect away from the hub is itself the response.

        Raises:
            HubResponseRefused: a redirect leads to an address that is not allowed.
            HubStatusError: the response is an error.
        """
        url = httpx2.URL(self._endpoint + path)
        for _ in range(MAX_REDIRECTS + 1):
            response = self._send_request(method, url, headers, timeout_s)
            try:
                following = self._find_redirect_target(response, url)
                if following is None or not (is_followed or self._is_hub_url(following)):
                    if response.status_code >= 400:
                        raise HubStatusError(
                            response.status_code, response.headers.get("X-Error-Code", "")
                        )
                    yield response
                    return
            # Also the response of a redirect is closed, whose body nobody reads.
            finally:
                response.close()
            url = following
        raise HubResponseRefused(f"The Hub redirects more than {MAX_REDIRECTS} times")

    def _find_redirect_target(
        self, response: httpx2.Response, url: httpx2.URL
    ) -> httpx2.URL | None:
        """Return the target of a redirect, or None if the response is no redirect.

        Raises:
            HubResponseRefused: the target is not allowed.
        """
        location = response.headers.get("Location")
        if response.status_code not in (301, 302, 303, 307, 308) or location is None:
            return None
        try:
            target = url.join(location)
        except (httpx2.InvalidURL, ValueError):
            raise HubResponseRefused("The Hub redirects to what is no URL") from None
        # Never from https to http: anyone on the way could then send other bytes.
        is_allowed = target.scheme == "https" or (target.scheme == "http" and url.scheme == "http")
        if not is_allowed or not target.host or target.userinfo:
            raise HubResponseRefused(
                f"The Hub redirects to "
                f"{_sanitize_hub_text(target.scheme)}://{_sanitize_hub_text(target.host)}, "
                f"which is not followed"
            )
        return target

    def _send_request(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], timeout_s: float
    ) -> httpx2.Response:
        """Send a request to the hub or a redirect's target; return the response, body unread."""
        all_headers = {**self._headers, **headers}
        if not self._is_hub_url(url) and not _is_proxy_set_for_url(url):
            return self._send_to_checked_address(method, url, all_headers, timeout_s)
        if self._is_hub_url(url):
            all_headers |= {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        # The proxy resolves names; only a literal address can be checked here.
        elif _parse_ip_address_or_none(url.host) is not None or is_cloud_metadata_name(url.host):
            self._resolve_checked_addresses(url)  # a proxy may reach internal addresses, too
        request = self._usual.build_request(method, url, headers=all_headers, timeout=timeout_s)
        return self._usual.send(request, stream=True, follow_redirects=False)

    def _send_to_checked_address(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], timeout_s: float
    ) -> httpx2.Response:
        """Send a request to a checked IP address, with the host's name in TLS and the Host header."""
        failed: httpx2.ConnectError | None = None
        for address in self._resolve_checked_addresses(url)[:MAX_ADDRESSES]:
            request = self._pinned.build_request(
                method,
                url.copy_with(host=str(address)),
                headers={**headers, "Host": url.netloc.decode()},
                extensions={"sni_hostname": url.host},
                timeout=timeout_s,
            )
            try:
                return self._pinned.send(request, stream=True, follow_redirects=False)
            except httpx2.ConnectError as error:
                failed = error
        assert failed is not None  # there is at least one address
        raise failed

    def _resolve_checked_addresses(self, url: httpx2.URL) -> list[IPAddress]:
        """Return those IP addresses of a URL's host that may be contacted.

        Raises:
            HubResponseRefused: an address of the name is not public.
        """
        addresses = self._resolve_host_without_address_check(url)
        hub_addresses = (
            self._resolve_host_without_address_check(self._hub)
            # A hub inside a network may store its files beside it, at the same host and port.
            if _get_effective_port(url) == _get_effective_port(self._hub)
            else []
        )
        for address in addresses:
            why = None if address in hub_addresses else describe_non_public_address(address)
            if why is not None:
                raise HubResponseRefused(
                    f"The Hub redirects to {_sanitize_hub_text(url.host)}, and {why}"
                )
        return addresses

    def _resolve_host_without_address_check(self, url: httpx2.URL) -> list[IPAddress]:
        """Resolve a URL's host to its IP addresses.

        Raises:
            HubResponseRefused: the host has no address, or no request may reach it.
        """
        # Such a name gives a machine's keys to everything that runs on it.
        if is_cloud_metadata_name(url.host):
            raise HubResponseRefused(
                f"The Hub redirects to {_sanitize_hub_text(url.host)}, which no request may reach"
            )
        literal = _parse_ip_address_or_none(url.host)
        if literal is not None:
            return [literal]
        try:
            addresses = [
                ipaddress.ip_address(text)
                for text in self._resolve(url.host, _get_effective_port(url))
            ]
        except (OSError, ValueError):
            addresses = []
        if not addresses:
            raise HubResponseRefused(
                f"The Hub redirects to {_sanitize_hub_text(url.host)}, which has no address"
            )
        return addresses

    def _is_hub_url(self, url: httpx2.URL) -> bool:
        return (url.scheme, url.host, _get_effective_port(url)) == (
            self._hub.scheme,
            self._hub.host,
            _get_effective_port(self._hub),
        )


def _resolve_host_by_system(host: str, port: int) -> list[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    # A resolver may list an address several times, and each would be tried.
    return list(dict.fromkeys(str(one[4][0]) for one in entries))


def _parse_ip_address_or_none(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _get_effective_port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _is_proxy_set_for_url(url: httpx2.URL) -> bool:
    """Return True if the environment sets a proxy for the URL.

    The proxy then resolves names itself.
    """
    proxies = urllib.request.getproxies()
    return bool(proxies.get(url.scheme) or proxies.get("all")) and not urllib.request.proxy_bypass(
        url.host
    )


def _sanitize_hub_text(text: str) -> str:
    """Return a text from a hub in a form that is safe to show."""
    return re.sub(r"[^\w.:\[\]-]", "?", text)[:MAX_SHOWN]
