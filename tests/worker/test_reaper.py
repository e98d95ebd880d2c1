"""Takeover of jobs from other workers: never in the first moments after an outage."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from tests.worker.conftest import Clock
from worker import loop
from worker import reaper as reapers
from worker.reaper import ExpiredJobRequeuer

LEASE_S = 60.0


class Base:
    """A database with the clock of the test, which can be unavailable or slow."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.out = False
        self.slow_s = 0.0
        self.reports: list[
            tuple[float, float]
        ] = []  # since when it has answered a worker, and until when

    @contextmanager
    def read(self) -> Iterator[None]:
        if self.out:
            raise OperationalError("SELECT 1", None, Exception("gone"))
        yield

    def now(self, _session: Any) -> float:
        now = self.clock.now
        self.clock.now += self.slow_s
        return now


@pytest.fixture
def base(clock: Clock) -> Base:
    return Base(clock)


@pytest.fixture
def reaper(base: Base, monkeypatch: pytest.MonkeyPatch) -> ExpiredJobRequeuer:
    """Return a reaper that takes one job, whenever it may, named by the time by which it judges."""
    monkeypatch.setattr(
        reapers.claims, "take_back_jobs_with_expired_lease", lambda _db, before: [f"job {before}"]
    )
    monkeypatch.setattr(
        reapers.workers,
        "read_database_available_since",
        lambda _session, seen_from, now: min(
            (a for a, seen in base.reports if seen >= seen_from and a <= now), default=None
        ),
    )
    return ExpiredJobRequeuer(base, LEASE_S)  # type: ignore[arg-type]


def measure_seconds_until_taken_back(reaper: ExpiredJobRequeuer, clock: Clock) -> float:
    begin = clock.now
    while not reaper.requeue_expired_jobs():
        clock.now += 1.0
    return clock.now - begin


def test_a_worker_looks_often_enough_to_tell_a_pause_from_an_outage(
    reaper: ExpiredJobRequeuer, clock: Clock
) -> None:
    looks = 0
    while not reaper.requeue_expired_jobs():
        looks += 1
        clock.now += LEASE_S / loop.REAPS_PER_LEASE
        assert looks <= loop.REAPS_PER_LEASE


def test_it_gives_others_half_a_lease_when_it_begins(
    reaper: ExpiredJobRequeuer, clock: Clock
) -> None:
    assert measure_seconds_until_taken_back(reaper, clock) == LEASE_S / 2
    assert measure_seconds_until_taken_back(reaper, clock) == 0


def test_workers_that_die_young_do_not_keep_all_others_waiting(
    reaper: ExpiredJobRequeuer, base: Base, clock: Clock
) -> None:
    for _life in range(3):
        reaper = ExpiredJobRequeuer(base, LEASE_S)  # type: ignore[arg-type]
        taken = reaper.requeue_expired_jobs()
        assert reaper.answers_since is not None
        base.reports.append((reaper.answers_since, clock.now))
        clock.now += LEASE_S / 3
    assert taken


def test_a_report_from_before_a_long_silence_says_nothing(
    reaper: ExpiredJobRequeuer, base: Base, clock: Clock
) -> None:
    base.reports.append((clock.now - 1000.0, clock.now - LEASE_S / 3 - 1))
    assert measure_seconds_until_taken_back(reaper, clock) == LEASE_S / 2


def test_it_gives_others_half_a_lease_after_it_was_frozen(
    reaper: ExpiredJobRequeuer, clock: Clock
) -> None:
    measure_seconds_until_taken_back(reaper, clock)
    clock.now += LEASE_S
    assert measure_seconds_until_taken_back(reaper, clock) == LEASE_S / 2


def test_it_gives_others_half_a_lease_after_an_outage(
    reaper: ExpiredJobRequeuer, base: Base, clock: Clock
) -> None:
    measure_seconds_until_taken_back(reaper, clock)
    base.out = True
    with pytest.raises(OperationalError):
        reaper.requeue_expired_jobs()
    base.out = False
    assert measure_seconds_until_taken_back(reaper, clock) == LEASE_S / 2


@pytest.mark.parametrize(("slow_s", "grace_s"), [(LEASE_S / 6 + 1, LEASE_S / 2), (LEASE_S / 6, 0)])
def test_it_gives_others_half_a_lease_after_the_database_hung(
    reaper: ExpiredJobRequeuer, base: Base, clock: Clock, slow_s: float, grace_s: float
) -> None:
    measure_seconds_until_taken_back(reaper, clock)
    base.slow_s = slow_s
    assert bool(reaper.requeue_expired_jobs()) is (grace_s == 0)
    base.slow_s = 0.0
    assert measure_seconds_until_taken_back(reaper, clock) == grace_s


def test_leases_are_judged_by_the_time_before_the_database_could_hang(
    reaper: ExpiredJobRequeuer, base: Base, clock: Clock
) -> None:
    measure_seconds_until_taken_back(reaper, clock)
    asked, base.slow_s = clock.now, 1.0
    assert reaper.requeue_expired_jobs() == [f"job {asked}"]


@pytest.mark.parametrize("days", [400, -400])
def test_it_gives_others_half_a_lease_after_the_clock_jumped(
    reaper: ExpiredJobRequeuer, clock: Clock, days: int
) -> None:
    measure_seconds_until_taken_back(reaper, clock)
    clock.now += days * 86_400.0
    assert measure_seconds_until_taken_back(reaper, clock) == LEASE_S / 2
    assert measure_seconds_until_taken_back(reaper, clock) == 0


def test_a_report_of_a_clock_that_was_put_back_says_nothing(
    reaper: ExpiredJobRequeuer, base: Base, clock: Clock
) -> None:
    ahead = clock.now + 400 * 86_400.0
    base.reports.append((ahead - 100, ahead))
    assert measure_seconds_until_taken_back(reaper, clock) == LEASE_S / 2
