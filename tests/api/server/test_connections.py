"""Limits on the number of connections, in total and for each address."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from api.server import connections
from api.server.connections import ConnectionLimiter
from core.errors import TooManyConnections
from core.files import descriptors
from core.settings import Settings
from tests.api.virtual_time import VirtualLoop


class Guest:
    """A connection that is only counted."""

    is_idle = False

    def abort_connection_if_idle(self) -> bool:
        return self.is_idle

    def check_connection_deadline(self, now: float) -> None:
        return


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = VirtualLoop()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def many_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "increase_file_descriptor_limit", lambda wanted: 10_000)


def build_connection_limiter(
    loop: asyncio.AbstractEventLoop, *, most: int = 20, of_one: int = 3, proxies: str = ""
) -> ConnectionLimiter:
    settings = Settings(
        max_connections=most, max_connections_per_address=of_one, trusted_proxies=proxies
    )
    return ConnectionLimiter(settings, loop)


def register_guests(
    all_: ConnectionLimiter, address: str | None, times: int = 1, descriptor: int = 9
) -> list[Guest]:
    guests = [Guest() for _ in range(times)]
    for guest in guests:
        all_.register_connection(guest, address, descriptor)
    return guests


def test_one_address_may_have_so_many_and_another_still_comes_in(
    loop: asyncio.AbstractEventLoop,
) -> None:
    all_ = build_connection_limiter(loop)
    register_guests(all_, "192.0.2.1", 3)
    with pytest.raises(TooManyConnections, match="3 connections") as refused:
        register_guests(all_, "192.0.2.1")
    assert refused.value.retry_after_s
    register_guests(all_, "192.0.2.2", 3)


def test_a_place_that_is_given_back_can_be_taken(loop: asyncio.AbstractEventLoop) -> None:
    all_ = build_connection_limiter(loop)
    guests = register_guests(all_, "192.0.2.1", 3)
    all_.remove_connection(guests[0])
    all_.remove_connection(guests[0])  # twice gives one place back
    register_guests(all_, "192.0.2.1")
    with pytest.raises(TooManyConnections):
        register_guests(all_, "192.0.2.1")


def test_addresses_of_one_ipv6_network_share_their_places(loop: asyncio.AbstractEventLoop) -> None:
    all_ = build_connection_limiter(loop)
    for last in range(3):
        register_guests(all_, f"2001:db8::{last}")
    with pytest.raises(TooManyConnections):
        register_guests(all_, "2001:db8::ffff")


def test_there_are_so_many_in_all(loop: asyncio.AbstractEventLoop) -> None:
    all_ = build_connection_limiter(loop, most=5, of_one=5)
    for number in range(5):
        register_guests(all_, f"192.0.2.{number}")
    with pytest.raises(TooManyConnections, match="takes no more"):
        register_guests(all_, "192.0.2.9")


def test_whoever_has_waited_longest_without_a_request_gives_way(
    loop: asyncio.AbstractEventLoop,
) -> None:
    all_ = build_connection_limiter(loop, most=5, of_one=5)
    guests = [
        *register_guests(all_, "192.0.2.1", 2),
        *register_guests(all_, "192.0.2.2", 2),
        *register_guests(all_, "192.0.2.3"),
    ]
    guests[1].is_idle = guests[3].is_idle = True
    register_guests(all_, "192.0.2.9", 2)
    assert list(all_._places)[:3] == [guests[0], guests[2], guests[4]]
    with pytest.raises(TooManyConnections):
        register_guests(all_, "192.0.2.8")


def test_an_address_beyond_its_own_limit_takes_nobody_elses_place(
    loop: asyncio.AbstractEventLoop,
) -> None:
    all_ = build_connection_limiter(loop, most=5, of_one=2)
    for guest in [
        *register_guests(all_, "192.0.2.2", 2),
        *register_guests(all_, "192.0.2.3"),
        *register_guests(all_, "192.0.2.1", 2),
    ]:
        guest.is_idle = True
    with pytest.raises(TooManyConnections):
        register_guests(all_, "192.0.2.1")
    assert len(all_._places) == 5


def test_a_refusal_leaves_no_count_behind(loop: asyncio.AbstractEventLoop) -> None:
    all_ = build_connection_limiter(loop, most=4, of_one=2)
    for address in ("192.0.2.1", "192.0.2.2"):
        register_guests(all_, address, 2)
    for _ in range(3):
        with pytest.raises(TooManyConnections):
            register_guests(all_, "192.0.2.3")
    assert "192.0.2.3" not in all_._by_address


def test_one_address_never_has_all_places(loop: asyncio.AbstractEventLoop) -> None:
    all_ = build_connection_limiter(loop, most=8, of_one=100)
    register_guests(all_, "192.0.2.1", 4)
    with pytest.raises(TooManyConnections):
        register_guests(all_, "192.0.2.1")


def test_a_hundred_streams_of_one_office_have_room_by_default(
    loop: asyncio.AbstractEventLoop,
) -> None:
    register_guests(ConnectionLimiter(Settings(), loop), "192.0.2.1", 200)


def test_a_trusted_proxy_is_not_counted_but_the_clients_that_it_names_are(
    loop: asyncio.AbstractEventLoop,
) -> None:
    all_ = build_connection_limiter(loop, proxies="10.0.0.0/8")
    guests = register_guests(all_, "10.0.0.1", 10)
    assert all_.register_connection(Guest(), "10.0.0.2", 9)
    for _ in range(3):
        all_.acquire_address_slot_or_refuse("203.0.113.7")
    with pytest.raises(TooManyConnections):
        all_.acquire_address_slot_or_refuse("203.0.113.7")
    all_.acquire_address_slot_or_refuse("203.0.113.8")
    all_.release_address_slot("203.0.113.7")
    all_.acquire_address_slot_or_refuse("203.0.113.7")
    assert len(guests) == 10


def test_whoever_is_no_trusted_proxy_is_counted_whatever_he_says(
    loop: asyncio.AbstractEventLoop,
) -> None:
    all_ = build_connection_limiter(loop, proxies="10.0.0.0/8")
    assert not all_.register_connection(Guest(), "203.0.113.7", 9)


def test_the_last_descriptors_are_kept(loop: asyncio.AbstractEventLoop) -> None:
    all_ = build_connection_limiter(loop)
    register_guests(all_, "192.0.2.1", descriptor=10_000 - 64 - 1)
    with pytest.raises(TooManyConnections):
        register_guests(all_, "192.0.2.1", descriptor=10_000 - 64)


def test_few_descriptors_allow_few_connections(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "increase_file_descriptor_limit", lambda wanted: 256)
    all_ = build_connection_limiter(loop, most=1000, of_one=250)
    assert all_.most == (256 - 64) // 2
    assert all_.most_of_one == all_.most // 2


def test_the_refused_do_not_pile_up(loop: asyncio.AbstractEventLoop) -> None:
    all_ = build_connection_limiter(loop)
    stayed = [
        all_.keep_refused_connection_open(Guest()) for _ in range(connections.MAX_LEAVING + 5)
    ]
    assert stayed.count(True) == connections.MAX_LEAVING


def test_what_is_due_is_looked_for_only_while_there_are_connections(
    loop: asyncio.AbstractEventLoop,
) -> None:
    looks = count()

    class Looked(Guest):
        def check_connection_deadline(self, now: float) -> None:
            next(looks)

    all_ = ConnectionLimiter(Settings(head_s=0.04), loop)
    guest = Looked()
    all_.register_connection(guest, "192.0.2.1", 9)
    loop.run_until_complete(asyncio.sleep(0.105))
    assert next(looks) == 10
    all_.remove_connection(guest)
    loop.run_until_complete(asyncio.sleep(0.05))
    assert all_._timer is None
