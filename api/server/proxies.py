"""The client of a request: the connecting address, or the client that a trusted proxy names.

Anyone can write X-Forwarded-For. Each proxy appends the address that connected to it. The list is
therefore read from the end, and only as far as its writers are trusted
(`PERENNIAL_TRUSTED_PROXIES`).
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

MAX_HOPS = 16
_LITERAL = 64
"""Maximum characters kept of a hop that is not an address, such as `unknown`."""
_IPV6_PREFIX = 64
"""Bits of an IPv6 address that identify a client, who usually controls the whole /64 network."""


class TrustedProxies:
    """The trusted proxies in front of the service.

    Args:
        trusted: addresses and networks, separated by commas; empty: none.

    Raises:
        ValueError: one of them is neither an address nor a network.
    """

    def __init__(self, trusted: str) -> None:
        parts = [part.strip() for part in trusted.split(",")]
        self._networks = [ipaddress.ip_network(part, strict=False) for part in parts if part]

    def is_trusted_proxy(self, address: str) -> bool:
        """Return True if the address belongs to a trusted proxy."""
        if not self._networks:
            return False
        parsed = _parse_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def find_client_address(self, forwarded: Iterable[bytes]) -> str | None:
        """Return the client's address: the nearest one in X-Forwarded-For that is no trusted proxy.

        Args:
            forwarded: values of X-Forwarded-For in order, from a request that a trusted proxy sent.

        Returns:
            The address, or None if all hops are trusted or the header is empty.
        """
        remaining = b",".join(forwarded).decode("latin-1")
        # The sender of the header chooses its length.
        for _ in range(MAX_HOPS):
            remaining, _, hop = remaining.rpartition(",")
            address = _strip_port_of_address(hop.strip())
            if address and not self.is_trusted_proxy(address):
                return address if _parse_address(address) is not None else address[:_LITERAL]
            if not remaining:
                break
        return None


@lru_cache(4096)
def derive_address_counting_key(address: str) -> str:
    """Return the key under which to count a client address: IPv6 by network, IPv4 in IPv6 as IPv4."""
    parsed = _parse_address(address)
    # One client may send from any address of its network.
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed.packed, _IPV6_PREFIX), strict=False))
    return address if parsed is None else str(parsed)


@lru_cache(4096)
def _parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _strip_port_of_address(hop: str) -> str:
    """Return an address of X-Forwarded-For without its port.

    `192.0.2.1:99` and `[2001:db8::1]:99` have a port; `2001:db8::1` has none.
    """
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
