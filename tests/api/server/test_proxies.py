"""Client addresses of requests behind trusted proxies and behind others."""

import pytest
from pydantic import ValidationError

from api.server.proxies import TrustedProxies, derive_address_counting_key
from core.settings import Settings


@pytest.mark.parametrize(
    ("trusted", "forwarded", "client"),
    [
        ("10.0.0.1", [b"203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", [b"203.0.113.7:4711"], "203.0.113.7"),
        ("10.0.0.1", [b"[2001:db8::7]:4711"], "2001:db8::7"),
        ("10.0.0.1", [b"2001:db8::7"], "2001:db8::7"),
        (
            "10.0.0.1",
            [b"198.51.100.1, 203.0.113.7"],
            "203.0.113.7",
        ),  # the left one is what the client wrote
        ("10.0.0.1", [b"198.51.100.1", b"203.0.113.7"], "203.0.113.7"),
        ("10.0.0.0/8", [b"203.0.113.7, 10.0.0.9"], "203.0.113.7"),
        ("10.0.0.1", [b"203.0.113.7, 10.0.0.9"], "10.0.0.9"),  # only the first hop is trusted
        ("10.0.0.0/8, 192.0.2.0/24", [b"203.0.113.7, 192.0.2.4,10.0.0.9"], "203.0.113.7"),
        ("10.0.0.0/8", [b"10.0.0.9"], None),  # a proxy asks for itself
        ("10.0.0.0/8", [], None),
        ("10.0.0.0/8", [b", ,"], None),
        ("10.0.0.0/8", [b"unknown"], "unknown"),
        ("10.0.0.0/8", [b"x" * 60_000], "x" * 64),
        ("10.0.0.0/8", [b"203.0.113.7" + b",10.0.0.1" * 99], None),  # no chain is that long
    ],
)
def test_the_nearest_hop_that_is_not_trusted_is_the_client(
    trusted: str, forwarded: list[bytes], client: str | None
) -> None:
    assert TrustedProxies(trusted).find_client_address(forwarded) == client


@pytest.mark.parametrize(
    ("trusted", "address", "is_trusted"),
    [
        ("", "127.0.0.1", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("2001:db8::/32", "2001:db8::1", True),
        ("10.0.0.7/8", "10.1.2.3", True),
    ],
)
def test_trusted_are_the_named_addresses_and_networks_alone(
    trusted: str, address: str, is_trusted: bool
) -> None:
    assert TrustedProxies(trusted).is_trusted_proxy(address) is is_trusted


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("unknown", "unknown"),
    ],
)
def test_an_ipv6_address_counts_as_its_network(address: str, key: str) -> None:
    assert derive_address_counting_key(address) == key


def test_a_proxy_that_is_no_address_is_refused_at_the_start() -> None:
    with pytest.raises(ValidationError, match=r"proxy\.example"):
        Settings(trusted_proxies="10.0.0.1, proxy.example")
