"""Requests to a hub whose answers are not trusted: where they lead, and how much of them is read.

The hub that is configured (HF_ENDPOINT) is reached as its operator says. Whatever it names is not: a redirect leads to
https alone, unless the hub itself is http, and to addresses of the public Internet, which are resolved once and dialled
as they were checked. The hub's token goes to the hub alone.
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

from core.public_address import IPAddress, is_metadata_name, not_public

MAX_REDIRECTS = 5
MAX_INFO_BYTES = 16 << 20
"""Of what a hub says of a repository."""
MAX_ADDRESSES = 4
"""Of a name that are tried, one after the other."""
MAX_SHOWN = 80
Resolver = Callable[[str, int], list[str]]
"""The addresses of a name, as text."""


class HubRefused(Exception):
    """An answer that is not followed; the text says why, in a sentence without an end mark."""


class HubStatus(Exception):
    """An answer of 400 or above.

    Attributes:
        status: of HTTP.
        code: the hub's own word for it, such as RepoNotFound.
    """

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"The Hub answered with status {status}")
        self.status, self.code = status, code


class GuardedHub:
    """A hub and the connections to it.

    Args:
        endpoint: of the hub.
        headers: sent with every request, wherever it leads.
        token: sent to the hub alone.
        resolve: the system's resolver when None.
    """

    def __init__(
        self, endpoint: str, headers: Mapping[str, str], token: str | None, resolve: Resolver | None = None
    ) -> None:
        self._endpoint, self._hub, self._token = endpoint.rstrip("/"), httpx2.URL(endpoint), token
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._resolve = resolve or _lookup
        self._open = ExitStack()
        # As the environment says, its proxies among it; and without them, for addresses in the place of names.
        self._usual = self._open.enter_context(httpx2.Client())
        self._pinned = self._open.enter_context(
            httpx2.Client(trust_env=False, verify=httpx2.create_ssl_context())
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read_info(self, path: str, timeout_s: float) -> Any:
        """Return the JSON that the hub answers.

        Raises:
            HubRefused: it is none, or too long.
            HubStatus, httpx2.TransportError: there is no such answer.
        """
        with self.opened("GET", path, {}, timeout_s) as answer:
            content = bytearray()
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > MAX_INFO_BYTES:
                    raise HubRefused(f"The Hub says more than {MAX_INFO_BYTES} bytes of the repository")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise HubRefused("The Hub's answer is no JSON") from None

    @contextmanager
    def opened(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        is_followed: bool = True,
    ) -> Iterator[httpx2.Response]:
        """Yield the answer to a request, whose body is still to be read.

        Args:
            path: at the hub.
            is_followed: False: a redirect that leads away from the hub is the answer.

        Raises:
            HubRefused: a redirect leads where none may.
            HubStatus: the answer is an error.
        """
        url = httpx2.URL(self._endpoint + path)
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._answer(method, url, headers, timeout_s)
            try:
                following = self._following(answer, url)
                if following is None or not (is_followed or self._is_hub(following)):
                    if answer.status_code >= 400:
                        raise HubStatus(answer.status_code, answer.headers.get("X-Error-Code", ""))
                    yield answer
                    return
            finally:
                answer.close()
            url = following
        raise HubRefused(f"The Hub redirects more than {MAX_REDIRECTS} times")

    def _following(self, answer: httpx2.Response, url: httpx2.URL) -> httpx2.URL | None:
        """Return the target of a redirect; None: it is none."""
        location = answer.headers.get("Location")
        if answer.status_code not in (301, 302, 303, 307, 308) or location is None:
            return None
        try:
            found = url.join(location)
        except (httpx2.InvalidURL, ValueError):
            raise HubRefused("The Hub redirects to what is no URL") from None
        is_allowed = found.scheme == "https" or (found.scheme == "http" and url.scheme == "http")
        if not is_allowed or not found.host or found.userinfo:
            raise HubRefused(
                f"The Hub redirects to {_shown(found.scheme)}://{_shown(found.host)}, which is not followed"
            )
        return found

    def _answer(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], timeout_s: float
    ) -> httpx2.Response:
        """The head of one answer, of the hub or of where it leads."""
        given = {**self._headers, **headers}
        if not self._is_hub(url) and not _is_proxied(url):
            return self._answer_of_address(method, url, given, timeout_s)
        if self._is_hub(url):
            given |= {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        elif _literal(url.host) is not None or is_metadata_name(url.host):
            self._checked_addresses(url)  # a proxy may reach what is inside, too
        request = self._usual.build_request(method, url, headers=given, timeout=timeout_s)
        return self._usual.send(request, stream=True, follow_redirects=False)

    def _answer_of_address(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], timeout_s: float
    ) -> httpx2.Response:
        """Dial an address that was checked; TLS and Host have the name."""
        failed: httpx2.ConnectError | None = None
        for address in self._checked_addresses(url)[:MAX_ADDRESSES]:
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
        assert failed is not None  # there is an address at least
        raise failed

    def _checked_addresses(self, url: httpx2.URL) -> list[IPAddress]:
        """Return the addresses to dial. Raises HubRefused where one of the name's is not public."""
        found = self._addresses(url)
        own = self._addresses(self._hub) if _port(url) == _port(self._hub) else []
        for address in found:
            why = None if address in own else not_public(address)
            if why is not None:
                raise HubRefused(f"The Hub redirects to {_shown(url.host)}, and {why}")
        return found

    def _addresses(self, url: httpx2.URL) -> list[IPAddress]:
        if is_metadata_name(url.host):
            raise HubRefused(f"The Hub redirects to {_shown(url.host)}, which no request may reach")
        literal = _literal(url.host)
        if literal is not None:
            return [literal]
        try:
            found = [ipaddress.ip_address(text) for text in self._resolve(url.host, _port(url))]
        except (OSError, ValueError):
            found = []
        if not found:
            raise HubRefused(f"The Hub redirects to {_shown(url.host)}, which has no address")
        return found

    def _is_hub(self, url: httpx2.URL) -> bool:
        return (url.scheme, url.host, _port(url)) == (self._hub.scheme, self._hub.host, _port(self._hub))


def _lookup(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _literal(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _is_proxied(url: httpx2.URL) -> bool:
    """Tell if the environment names a proxy for it, which resolves names itself."""
    proxies = urllib.request.getproxies()
    return bool(proxies.get(url.scheme) or proxies.get("all")) and not urllib.request.proxy_bypass(url.host)


def _shown(text: str) -> str:
    return re.sub(r"[^\w.:\[\]-]", "?", text)[:MAX_SHOWN]
