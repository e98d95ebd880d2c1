"""Addresses supplied by users: only those on the public Internet are allowed.

The hostile ones are in `tests/security/addresses.py`.
"""

import ipaddress

import pytest

from perennial.public_address import (
    AddressRefused,
    describe_non_public_address,
    find_embedded_ipv4,
    parse_ip_networks,
    parse_url_target,
    resolve_addresses_and_require_allowed,
)
from tests.security import addresses
from tests.security.addresses import Named

PUBLIC = ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]
TRUE_PUBLIC = ("8.8.8.8", "1.1.1.1", "193.0.6.139", "2001:4860:4860::8888", "2a00:1450:4001::1", "64:ff9b::808:808",
               "::ffff:8.8.8.8", "2002:808:808::1")  # fmt: skip


def test_the_corpus_has_more_than_a_hundred_and_fifty_addresses() -> None:
    every = {*addresses.SPELLINGS, *addresses.LITERALS, *addresses.INSIDE, *addresses.NAMES}
    assert len(every) > 150


@pytest.mark.parametrize("url", addresses.SPELLINGS)
def test_an_address_in_another_spelling_is_no_url_of_a_webhook(url: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        parse_url_target(url)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 300


@pytest.mark.parametrize("url", [*addresses.LITERALS, *addresses.INSIDE])
def test_an_address_that_is_not_public_is_refused_with_its_reason(url: str) -> None:
    with pytest.raises(AddressRefused, match="PERENNIAL_WEBHOOK_ALLOW"):
        resolve_addresses_and_require_allowed(parse_url_target(url), ())


@pytest.mark.parametrize(
    "named", addresses.NAMES, ids=lambda named: ",".join(named.answers) or "nothing"
)
def test_a_name_of_which_one_address_is_not_public_is_refused(named: Named) -> None:
    with pytest.raises(AddressRefused):
        resolve_addresses_and_require_allowed(
            parse_url_target(named.url), (), lambda host, port: list(named.answers)
        )


@pytest.mark.parametrize("url", addresses.FINE)
def test_a_plain_address_is_taken(url: str) -> None:
    target = parse_url_target(url)
    assert resolve_addresses_and_require_allowed(target, (), lambda host, port: PUBLIC)
    assert target.host == target.host.lower()


@pytest.mark.parametrize("address", TRUE_PUBLIC)
def test_a_public_address_is_public(address: str) -> None:
    assert describe_non_public_address(ipaddress.ip_address(address)) is None


def test_what_is_allowed_may_be_reached_by_http_and_nothing_else() -> None:
    allow = parse_ip_networks("10.1.0.0/16, fd00::/8")
    assert resolve_addresses_and_require_allowed(parse_url_target("http://10.1.2.3/"), allow) == [
        ipaddress.ip_address("10.1.2.3")
    ]
    assert resolve_addresses_and_require_allowed(parse_url_target("https://[fd00::1]/"), allow)
    assert resolve_addresses_and_require_allowed(
        parse_url_target("https://[::ffff:10.1.2.3]/"), allow
    )
    for url in ("https://10.2.0.1/", "https://[fe80::1]/"):
        with pytest.raises(AddressRefused):
            resolve_addresses_and_require_allowed(parse_url_target(url), allow)
    with pytest.raises(AddressRefused, match="needs https"):
        resolve_addresses_and_require_allowed(parse_url_target("http://93.184.215.14/"), allow)


def test_an_embedded_address_is_read_out_of_its_last_or_its_own_bits() -> None:
    for text, inner in {
        "::ffff:1.2.3.4": "1.2.3.4",
        "64:ff9b::1.2.3.4": "1.2.3.4",
        "2002:102:304::9": "1.2.3.4",
        "::1.2.3.4": "1.2.3.4",
        "::ffff:0:1.2.3.4": "1.2.3.4",
        "2606:4700::5efe:1.2.3.4": "1.2.3.4",
    }.items():
        assert str(find_embedded_ipv4(ipaddress.ip_address(text))) == inner
    assert find_embedded_ipv4(ipaddress.ip_address("2606:4700::1")) is None
    assert find_embedded_ipv4(ipaddress.ip_address("::1")) is None


def test_the_host_header_has_brackets_and_the_port_only_where_they_belong() -> None:
    assert parse_url_target("https://example.org:443/").host_header == "example.org"
    assert parse_url_target("https://example.org:8443/").host_header == "example.org:8443"
    assert parse_url_target("https://[2606:4700::1]/").host_header == "[2606:4700::1]"
