"""Checks of addresses that somebody else chose, so that the service sends nothing to internal ones.

A URL is parsed by one strict grammar, so that no two parsers can disagree about its host. The name
is resolved once, and every address that it has must belong to the public Internet. An IPv6 address
that embeds an IPv4 one (mapped, NAT64, 6to4 …) is judged by the embedded one. Networks that an
operator allows (`PERENNIAL_WEBHOOK_ALLOW`) are exempt.
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
"""Function that returns the addresses of a name and port, as text."""

# ASCII, because IGNORECASE alone lets `ſ` and the Kelvin sign match s and k.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<target>/[!\$-;=?-Z_a-z~]*)?",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# The only block that is assigned to the Internet; Python calls others global as well.
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NOT_GLOBAL_V6 = tuple(
    map(
        ipaddress.ip_network,
        ("2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "2620:4f:8000::/48"),
    )
)
"""Networks inside 2000::/3 that no public server uses.

They are Teredo and other protocols, documentation, segment routing and AS112.
"""
_NOT_GLOBAL_V4 = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "192.31.196.0/24",
                                                  "192.52.193.0/24", "192.175.48.0/24")))  # fmt: skip
"""Networks of protocols, 6to4 relays and AS112, some of which Python calls global."""
_PLATFORM_V4 = frozenset({ipaddress.IPv4Address("168.63.129.16")})
"""Address in a public range that is internal to every machine of a cloud (Azure)."""
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
     "metadata.azure.internal", "metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com"}
)  # fmt: skip
"""Names of services that provide keys to machines of a cloud; some have public addresses."""


class AddressRefused(Exception):
    """Error: a URL's address may not be contacted; the message says why, and what to give instead."""


@dataclass(frozen=True)
class HttpRequestTarget:
    """Parsed target of an HTTP request: scheme, host, port and path.

    Attributes:
        scheme: `http` or `https`.
        host: a name in lower case, or an address without brackets.
        port: 1 to 65535.
        path: path with its query.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def is_ipv6(self) -> bool:
        """True if the target's host is an IPv6 address."""
        return ":" in self.host

    @property
    def host_header(self) -> str:
        """Value of the HTTP header `Host` for the target."""
        host = f"[{self.host}]" if self.is_ipv6 else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse_ip_networks(text: str) -> tuple[Network, ...]:
    """Parse IP networks separated by commas.

    Raises:
        ValueError: a network is malformed; the message says how.
    """
    parts = filter(None, (part.strip() for part in text.split(",")))
    # Not strict: operators write 10.0.0.5/8 for its network.
    return tuple(ipaddress.ip_network(part, strict=False) for part in parts)


def parse_url_target(url: str, max_chars: int = MAX_URL_CHARS) -> HttpRequestTarget:
    """Parse a URL to the request target that it addresses: scheme, host, port and path.

    Args:
        url: the URL.
        max_chars: maximum length of the URL.

    Raises:
        AddressRefused: it is not `https://host[:port][/path][?query]` (or http) in its plainest form.
    """
    if len(url) > max_chars:
        raise AddressRefused(f"A URL may have {max_chars} characters; this one has {len(url)}.")
    match = _URL.fullmatch(url)
    if match is None:
        raise AddressRefused(_explain_invalid_webhook_url(url))
    scheme, host = match["scheme"].lower(), match["host"].lower()
    port = int(match["port"] or DEFAULT_PORTS[scheme])
    if port > 65535:
        raise AddressRefused(f"{port} is no port: ports are 1 to 65535.")
    return HttpRequestTarget(scheme, _parse_host_strictly(host), port, match["target"] or "/")


def resolve_addresses_and_require_allowed(
    target: HttpRequestTarget, allow: Sequence[Network], resolve: Resolver | None = None
) -> list[IPAddress]:
    """Resolve a request's host, and check that each of its IP addresses may be contacted.

    Args:
        target: the target of a request.
        allow: networks that an operator allows.
        resolve: function that resolves names; `resolve_host_name` if None.

    Raises:
        AddressRefused: the name has no address or a non-public one, or http leads to an address that is
            not allowed.
    """
    # Before the allowed networks, which must not open a cloud's keys by accident.
    if is_cloud_metadata_name(target.host):
        raise AddressRefused(
            f"{target.host} is a cloud's own service for its machines, and no webhook goes there."
        )
    addresses = _resolve_addresses(target, resolve or resolve_host_name)
    # All of them must be allowed, because a connection may use any.
    for address in addresses:
        if _is_in_ip_networks(address, allow):
            continue
        why = describe_non_public_address(address)
        subject = "" if str(address) == target.host else f"{target.host} is {address}: "
        if why is not None:
            raise AddressRefused(
                f"{subject}{why}, and webhooks go to public addresses alone. The service's "
                "operator allows others in PERENNIAL_WEBHOOK_ALLOW."
            )
        if target.scheme != "https":
            raise AddressRefused(
                "A webhook needs https://; http:// goes only to what PERENNIAL_WEBHOOK_ALLOW names."
            )
    return addresses


def resolve_host_name(host: str, port: int) -> list[str]:
    """Resolve a host name to IP addresses, as the system does.

    Raises:
        OSError: the name cannot be resolved.
    """
    # With one type and protocol, since otherwise each address would come once for each type.
    address_infos = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    return list(dict.fromkeys(str(info[4][0]) for info in address_infos))


def is_cloud_metadata_name(host: str) -> bool:
    """Return True if a host name is that of a cloud's metadata service, which gives out
    credentials.
    """
    # A final dot names the same host.
    return host.lower().rstrip(".") in _METADATA_NAMES


def describe_non_public_address(address: IPAddress) -> str | None:
    """Return why an IP address is not public, or None if it is public."""
    # First, since a gateway translates such an address, global by its prefix, to the inner one.
    inner = find_embedded_ipv4(address)
    if inner is not None:
        why = describe_non_public_address(inner)
        return None if why is None else f"{address} stands for {inner}, and {why}"
    if address.is_multicast:
        return f"{address} is a multicast address"
    if address.is_loopback:
        return f"{address} is a loopback address"
    if address.is_link_local:
        return f"{address} is a link-local address"
    # A scope names a network interface, which an address of the Internet does not need.
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return f"{address} is an address of one interface"
    if address in _PLATFORM_V4:
        return f"{address} is a cloud's own service for its machines"
    if isinstance(address, ipaddress.IPv4Address):
        public = (
            address.is_global
            and not address.is_reserved
            and not _is_in_ip_networks(address, _NOT_GLOBAL_V4)
        )
    else:
        public = (
            address.is_global
            and address in _GLOBAL_V6
            and not _is_in_ip_networks(address, _NOT_GLOBAL_V6)
        )
    return None if public else f"{address} is a private or reserved address"


def find_embedded_ipv4(address: IPAddress) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address embeds, or None.

    Mapped, NAT64, 6to4, compatible, translated and ISATAP addresses are recognised.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    low, high = int(address) & 0xFFFFFFFF, int(address) >> 32
    # `::` and `::1` have this form, too, and embed nothing.
    compatible = high == 0 and low > 0xFFFF
    translated = high == 0xFFFF << 16  # ::ffff:0:a.b.c.d
    isatap = high & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE)
    return (
        ipaddress.IPv4Address(low)
        if address in _NAT64 or compatible or translated or isatap
        else None
    )


def _resolve_addresses(target: HttpRequestTarget, resolve: Resolver) -> list[IPAddress]:
    try:
        # An address needs no resolver, whose own parser might read it differently.
        return [ipaddress.ip_address(target.host)]
    except ValueError:
        pass  # the host is a name
    try:
        addresses = [ipaddress.ip_address(text) for text in resolve(target.host, target.port)]
    except (OSError, ValueError) as error:  # ValueError: an address with a scope
        raise AddressRefused(
            f"{target.host} has no address: {getattr(error, 'strerror', None) or error}."
        ) from None
    if not addresses:
        raise AddressRefused(f"{target.host} has no address.")
    return addresses


def _parse_host_strictly(host: str) -> str:
    """Return a host name in its canonical form.

    Raises:
        AddressRefused: the host is an unusual spelling of an address, or not a valid name.
    """
    try:
        if host.startswith("["):
            return str(ipaddress.IPv6Address(host[1:-1]))
        labels = host.split(".")
        # Some parsers read such a label as a number.
        if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1]):
            return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise AddressRefused(
            f"{host} is no address: write an IPv4 one as four decimal numbers."
        ) from None
    # The limits of DNS, which `_LABEL` has for each label.
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise AddressRefused(
            f"{host[:80]} is no name of a host: labels of letters, digits and hyphens, and no dot "
            f"at the end."
        )
    return host


def _is_in_ip_networks(address: IPAddress, nets: Sequence[Network]) -> bool:
    inner = find_embedded_ipv4(address)
    # An operator who allows an IPv4 network means the IPv6 forms of its addresses as well.
    return any(
        candidate in net for net in nets for candidate in (address, inner) if candidate is not None
    )


def _explain_invalid_webhook_url(url: str) -> str:
    advice = "Give it as https://host/path"
    if "@" in url.partition("://")[2].partition("/")[0]:
        return f"A URL with a user name is not taken: the signature says who sends. {advice}."
    if not url.isascii():
        return (
            f"A URL is ASCII: an international name is written as xn--…, other characters as "
            f"%xx. {advice}."
        )
    if "#" in url:
        return f"A URL of a webhook has no part after '#'. {advice}."
    return f"{url[:80]!r} is no URL of a webhook. {advice}."
