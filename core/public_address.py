"""To where the service may send by itself: addresses that somebody else named, of which none may lead inside.

A URL is read by one strict grammar, so that no two readers can differ about its host. Its name is resolved once, and
every address that it has must be one of the public Internet. An IPv6 address that stands for an IPv4 one (mapped,
NAT64, 6to4 …) is judged by that. What an operator allows (`PERENNIAL_WEBHOOK_ALLOW`) is exempt.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_URL_CHARS = 2000
DEFAULT_PORTS = {"https": 443, "http": 80}
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], list[str]]
"""The addresses of a name, as text."""

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<target>/[!\$-;=?-Z_a-z~]*)?",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NOT_GLOBAL_V6 = tuple(
    map(ipaddress.ip_network, ("2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "2620:4f:8000::/48"))
)
"""Inside 2000::/3 and yet for nobody's servers: Teredo and other protocols, documentation, segments, AS112."""
_NOT_GLOBAL_V4 = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "192.31.196.0/24",
                                                  "192.52.193.0/24", "192.175.48.0/24")))  # fmt: skip
"""Of protocols, 6to4 relays and AS112, which Python calls global in part."""
_PLATFORM_V4 = frozenset({ipaddress.IPv4Address("168.63.129.16")})
"""Public by its range, and yet the inside of every machine of a cloud (Azure)."""
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
     "metadata.azure.internal", "metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com"}
)  # fmt: skip
"""Names of services that hand out keys to machines of a cloud; some resolve to public addresses."""


class Refused(Exception):
    """An address to which nothing is sent; the message says why, and what to give instead."""


@dataclass(frozen=True)
class Target:
    """Target of a request. `host`: a name in lower case, or an address without brackets; `path`: with its query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def is_v6(self) -> bool:
        """True where the host is an IPv6 address."""
        return ":" in self.host

    @property
    def host_header(self) -> str:
        """The value of Host."""
        host = f"[{self.host}]" if self.is_v6 else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def networks(text: str) -> tuple[Network, ...]:
    """Networks separated by commas. Raises ValueError, which says what is wrong."""
    parts = filter(None, (part.strip() for part in text.split(",")))
    return tuple(ipaddress.ip_network(part, strict=False) for part in parts)


def target_of(url: str, max_chars: int = MAX_URL_CHARS) -> Target:
    """Return what a URL says.

    Args:
        max_chars: how long it may be.

    Raises:
        Refused: it is not `https://host[:port][/path][?query]` (or http) in its plainest form.
    """
    if len(url) > max_chars:
        raise Refused(f"A URL may have {max_chars} characters; this one has {len(url)}.")
    found = _URL.fullmatch(url)
    if found is None:
        raise Refused(_form(url))
    scheme, host = found["scheme"].lower(), found["host"].lower()
    port = int(found["port"] or DEFAULT_PORTS[scheme])
    if port > 65535:
        raise Refused(f"{port} is no port: ports are 1 to 65535.")
    return Target(scheme, _host(host), port, found["target"] or "/")


def checked(target: Target, allow: Sequence[Network], resolve: Resolver | None = None) -> list[IPAddress]:
    """The addresses of a target, each of which may be dialled.

    Args:
        allow: networks that an operator allows.
        resolve: `lookup` when None.

    Raises:
        Refused: the name has no address, or one that is not public, or http leads to one that is not allowed.
    """
    if is_metadata_name(target.host):
        raise Refused(f"{target.host} is a cloud's own service for its machines, and no webhook goes there.")
    found = _addresses(target, resolve or lookup)
    for address in found:
        if _is_in(address, allow):
            continue
        why = not_public(address)
        named = "" if str(address) == target.host else f"{target.host} is {address}: "
        if why is not None:
            raise Refused(
                f"{named}{why}, and webhooks go to public addresses alone. The service's operator allows others in"
                " PERENNIAL_WEBHOOK_ALLOW."
            )
        if target.scheme != "https":
            raise Refused(
                "A webhook needs https://; http:// goes only to what PERENNIAL_WEBHOOK_ALLOW names."
            )
    return found


def lookup(host: str, port: int) -> list[str]:
    """The addresses of a name, as the system resolves it. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def is_metadata_name(host: str) -> bool:
    """Tell if a name is that of a service which hands out keys to machines of a cloud."""
    return host.lower().rstrip(".") in _METADATA_NAMES


def not_public(address: IPAddress) -> str | None:
    """Return in words what an address is if it is not one of the public Internet's; None: it is one."""
    inner = embedded(address)
    if inner is not None:
        why = not_public(inner)
        return None if why is None else f"{address} stands for {inner}, and {why}"
    if address.is_multicast:
        return f"{address} is a multicast address"
    if address.is_loopback:
        return f"{address} is a loopback address"
    if address.is_link_local:
        return f"{address} is a link-local address"
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return f"{address} is an address of one interface"
    if address in _PLATFORM_V4:
        return f"{address} is a cloud's own service for its machines"
    if isinstance(address, ipaddress.IPv4Address):
        public = address.is_global and not address.is_reserved and not _is_in(address, _NOT_GLOBAL_V4)
    else:
        public = address.is_global and address in _GLOBAL_V6 and not _is_in(address, _NOT_GLOBAL_V6)
    return None if public else f"{address} is a private or reserved address"


def embedded(address: IPAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for: mapped, NAT64, 6to4, compatible, translated or ISATAP."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    low, high = int(address) & 0xFFFFFFFF, int(address) >> 32
    compatible = high == 0 and low > 0xFFFF
    translated = high == 0xFFFF << 16  # ::ffff:0:a.b.c.d
    isatap = high & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE)
    return ipaddress.IPv4Address(low) if address in _NAT64 or compatible or translated or isatap else None


def _addresses(target: Target, resolve: Resolver) -> list[IPAddress]:
    try:
        return [ipaddress.ip_address(target.host)]
    except ValueError:
        pass  # a name
    try:
        found = [ipaddress.ip_address(text) for text in resolve(target.host, target.port)]
    except (OSError, ValueError) as error:  # ValueError: an address of one interface
        raise Refused(f"{target.host} has no address: {getattr(error, 'strerror', None) or error}.") from None
    if not found:
        raise Refused(f"{target.host} has no address.")
    return found


def _host(host: str) -> str:
    """A host as names and addresses are written, once.

    Raises:
        Refused: another way to write an address, or no name.
    """
    try:
        if host.startswith("["):
            return str(ipaddress.IPv6Address(host[1:-1]))
        labels = host.split(".")
        if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1]):  # what some readers take for a number
            return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise Refused(f"{host} is no address: write an IPv4 one as four decimal numbers.") from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise Refused(
            f"{host[:80]} is no name of a host: labels of letters, digits and hyphens, and no dot at the end."
        )
    return host


def _is_in(address: IPAddress, nets: Sequence[Network]) -> bool:
    inner = embedded(address)
    return any(one in net for net in nets for one in (address, inner) if one is not None)


def _form(url: str) -> str:
    plain = "Give it as https://host/path"
    if "@" in url.partition("://")[2].partition("/")[0]:
        return f"A URL with a user name is not taken: the signature says who sends. {plain}."
    if not url.isascii():
        return f"A URL is ASCII: an international name is written as xn--…, other characters as %xx. {plain}."
    if "#" in url:
        return f"A URL of a webhook has no part after '#'. {plain}."
    return f"{url[:80]!r} is no URL of a webhook. {plain}."
