"""When a worker may take jobs from others: not in the first moments after an outage."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from worker import reaper as reapers
from worker.reaper import Reaper

LEASE_S = 0.6


class Base:
    """A database with a clock of its own, that can be out or slow."""

    def __init__(self) -> None:
        self.out = False
        self.slow_s = 0.0

    @contextmanager
    def read(self) -> Iterator[None]:
        if self.out:
            raise OperationalError("SELECT 1", None, Exception("gone"))
        yield

    def now(self, _session: Any) -> float:
        now = time.monotonic()
        time.sleep(self.slow_s)
        return now


@pytest.fixture
def base() -> Base:
    return Base()


@pytest.fixture
def reaper(base: Base, monkeypatch: pytest.MonkeyPatch) -> Reaper:
    """One that takes `["job"]` whenever it may."""
    monkeypatch.setattr(reapers.claims, "reap", lambda _db, _before: ["job"])
    return Reaper(base, LEASE_S)  # type: ignore[arg-type]


def taken_after(reaper: Reaper) -> float:
    """Seconds until it takes the job."""
    began = time.monotonic()
    while not reaper.reap():
        assert time.monotonic() - began < 10
        time.sleep(0.01)
    return time.monotonic() - began


def test_it_gives_others_half_a_lease_when_it_begins(reaper: Reaper) -> None:
    assert taken_after(reaper) >= LEASE_S / 2 - 0.01
    assert reaper.reap() == ["job"]


def test_it_gives_others_half_a_lease_after_an_outage(reaper: Reaper, base: Base) -> None:
    taken_after(reaper)
    base.out = True
    with pytest.raises(OperationalError):
        reaper.reap()
    base.out = False
    assert taken_after(reaper) >= LEASE_S / 2 - 0.01


def test_it_gives_others_half_a_lease_after_the_database_hung(reaper: Reaper, base: Base) -> None:
    taken_after(reaper)
    base.slow_s = LEASE_S / 3
    assert reaper.reap() == []
    base.slow_s = 0.0
    assert taken_after(reaper) > 0.0


def test_leases_are_judged_by_the_time_before_the_database_could_hang(
    reaper: Reaper, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_after(reaper)
    judged: list[float] = []
    monkeypatch.setattr(reapers.claims, "reap", lambda _db, before: judged.append(before) or [])
    began = time.monotonic()
    reaper.reap()
    assert began <= judged[0] <= time.monotonic()
