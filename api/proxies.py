"""Whose request it is: the address that connects, or the client that a trusted proxy names.

Anybody can write X-Forwarded-For. Each proxy adds the address that came to it at the end, so the list is read from
there, and only as far as those who wrote it are trusted (`PERENNIAL_TRUSTED_PROXIES`).
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

MAX_HOPS = 16
_LITERAL = 64
"""Characters that are kept of a hop that is no address, such as `unknown`."""
_IPV6_PREFIX = 64
"""Bits of an IPv6 address that are counted: whoever has one address has all that begin like it."""


class Proxies:
    """The proxies before the service.

    Args:
        trusted: addresses and networks, separated by commas; empty: none.

    Raises:
        ValueError: one of them is neither.
    """

    def __init__(self, trusted: str) -> None:
        parts = [part.strip() for part in trusted.split(",")]
        self._networks = [ipaddress.ip_network(part, strict=False) for part in parts if part]

    def trusts(self, address: str) -> bool:
        """Whether an address is one of theirs."""
        if not self._networks:
            return False
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def client(self, forwarded: Iterable[bytes]) -> str | None:
        """The nearest address that is not trusted.

        Args:
            forwarded: values of X-Forwarded-For in their order, of a request that a trusted proxy sent.

        Returns:
            None where a proxy asks for itself, or for others that are trusted.
        """
        rest = b",".join(forwarded).decode("latin-1")
        for _ in range(MAX_HOPS):
            rest, _, hop = rest.rpartition(",")
            address = _without_port(hop.strip())
            if address and not self.trusts(address):
                return address if _parsed(address) is not None else address[:_LITERAL]
            if not rest:
                break
        return None


@lru_cache(4096)
def counted(address: str) -> str:
    """Under what an address is counted: IPv6 by its network, IPv4 in IPv6 as IPv4."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed.packed, _IPV6_PREFIX), strict=False))
    return address if parsed is None else str(parsed)


@lru_cache(4096)
def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _without_port(hop: str) -> str:
    """`192.0.2.1:99` and `[2001:db8::1]:99` have a port; `2001:db8::1` has none."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
