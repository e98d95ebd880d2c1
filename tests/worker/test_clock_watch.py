"""Clocks that are put forward or back by more than a year: nothing is removed at once, nothing
stays held for ever.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from core.database.states import JobState
from core.database.tables import (
    IdempotencyRecord,
    IntegrityScrubProgress,
    Job,
    Owner,
    Upload,
    Webhook,
    WorkerReport,
)
from core.scheduling import claim as claims
from tests.core import desk as desks
from worker import clock_watch
from worker.clock_watch import CALM_S, DatabaseClockWatch

DAY_S = 86_400.0
JUMP_S = 400 * DAY_S
LEASE_S = 60.0
desk = desks.desk


@pytest.fixture
def clocks(desk: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clocks of a worker: `there` is the database's, `here` a monotonic one; both move
    by hand.
    """
    made = SimpleNamespace(there=2e9, here=100.0, monotonic=lambda: made.here)
    monkeypatch.setattr(desk.db, "now", lambda _session: made.there)
    monkeypatch.setattr(clock_watch, "time", made)
    return made


def advance_clocks(clocks: SimpleNamespace, seconds: float, jump: float = 0.0) -> None:
    clocks.here += seconds
    clocks.there += seconds + jump


@pytest.mark.parametrize("jump", [JUMP_S, -JUMP_S])
def test_nothing_is_removed_for_an_hour_after_a_jump(
    desk: Any,
    clocks: SimpleNamespace,
    jump: float,
) -> None:
    watch = DatabaseClockWatch(desk.db, LEASE_S)
    assert watch.detect_jump_and_report_steadiness()
    advance_clocks(clocks, 5.0)
    assert watch.detect_jump_and_report_steadiness()
    advance_clocks(clocks, 5.0, jump)
    assert not watch.detect_jump_and_report_steadiness()
    advance_clocks(clocks, CALM_S - 1)
    assert not watch.detect_jump_and_report_steadiness()
    advance_clocks(clocks, 2.0)
    assert watch.detect_jump_and_report_steadiness()


def test_a_clock_that_is_set_by_some_minutes_is_no_jump(desk: Any, clocks: SimpleNamespace) -> None:
    watch = DatabaseClockWatch(desk.db, LEASE_S)
    watch.detect_and_correct_clock_jump()
    for step in (600.0, -600.0):
        advance_clocks(clocks, 5.0, step)
        assert watch.detect_jump_and_report_steadiness()


@pytest.mark.both_databases
@pytest.mark.parametrize("is_begun", [False, True], ids=["at its start", "while it runs"])
def test_what_a_clock_that_was_put_back_leaves_in_the_future_is_brought_near(
    desk: Any,
    clocks: SimpleNamespace,
    is_begun: bool,
) -> None:
    dead, claim = desk.begin()
    put_off, other = desk.begin()
    claims.put_off_claimed_job(desk.db, other, "another job", 5.0)
    with desk.db.write() as session:
        owner = session.query(Owner).first().id
        later = clocks.there + 30
        common = {"created_at": clocks.there}
        session.add(
            Upload(
                id="upl_1", owner_id=owner, length=1, held_until=later, expires_at=later, **common
            )
        )
        session.add(Webhook(id="whk_1", owner_id=owner, url="", events=[], secret_sha256="", lease_until=later,
                            due_at=later, **common))  # fmt: skip
        session.add(
            IntegrityScrubProgress(id=1, fence=0, lease_until=later, cursor="", objects=0, bytes=0)
        )
        session.add(
            IdempotencyRecord(
                owner_id=owner, route="r", key="k", fingerprint="", headers={}, **common
            )
        )
        session.add(WorkerReport(worker="w", device="cpu", gpus=0, seen_at=clocks.there))
    watch = DatabaseClockWatch(desk.db, LEASE_S)
    if is_begun:
        watch.detect_and_correct_clock_jump()
    advance_clocks(clocks, 5.0, -JUMP_S)
    watch.detect_and_correct_clock_jump()
    now = clocks.there
    with desk.db.read() as session:
        held = {
            "job": session.get(Job, dead).lease_until,
            "put off": session.get(Job, put_off).not_before,
            "upload": session.get(Upload, "upl_1").held_until,
            "webhook": session.get(Webhook, "whk_1").lease_until,
            "delivery": session.get(Webhook, "whk_1").due_at,
            "scrub": session.get(IntegrityScrubProgress, 1).lease_until,
            "request": session.query(IdempotencyRecord).one().created_at,
        }
        assert session.query(WorkerReport).count() == 0
    assert {name: at for name, at in held.items() if not now <= at <= now + LEASE_S} == {}
    assert desk.state(dead) is JobState.RUNNING and claims.renew_job_lease(
        desk.db, dead, claim.fence, LEASE_S
    )
    assert claims.claim_job(desk.db, "w2", LEASE_S).job_id == put_off
    assert (
        claims.take_back_jobs_with_expired_lease(desk.db, now + LEASE_S + 1)
        and desk.state(dead) is JobState.QUEUED
    )


def test_what_lies_as_far_ahead_as_it_may_stays(desk: Any, clocks: SimpleNamespace) -> None:
    job, _ = desk.begin()
    before = desk.job(job).lease_until
    DatabaseClockWatch(desk.db, LEASE_S).detect_and_correct_clock_jump()
    assert desk.job(job).lease_until == before
