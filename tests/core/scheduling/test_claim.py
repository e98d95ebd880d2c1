"""Claims: order, leases, fences, strikes, and what a worker that lost its lease can do
(nothing).
"""

import threading
from typing import Any

import pytest

from core.database.states import JobAction, JobState
from core.database.tables import Alias, Model, StoredJobEvent
from core.errors import LeaseLost, Rejected
from core.execution.kinds import JobOutcome
from core.scheduling import claim as claims
from tests.core.at_once import run_at_once


@pytest.mark.both_databases
def test_an_empty_queue_gives_no_claim_also_while_another_writes(desk: Any) -> None:
    assert claims.claim_job(desk.db, "w", 60) is None
    # SQLite has one writer: other transactions wait until it ends.
    with desk.db.write():
        assert claims.claim_job(desk.db, "w", 60) is None


@pytest.mark.both_databases
def test_a_claim_writes_attempt_fence_worker_and_lease(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claim = desk.claim("w1", 60)
    job = desk.job(job_id)
    assert (claim.job_id, claim.attempt, claim.parent_version) == (job_id, 1, 0)
    assert (job.state, job.fence, job.worker, job.attempt) == ("running", claim.fence, "w1", 1)
    assert 50 < job.lease_until - desk.now() <= 60
    assert job.started_at is not None


def test_a_task_that_is_not_decoded_is_validated_first(desk: Any) -> None:
    desk.submit(desk.model(), decoded=False)
    assert desk.claim().state is JobState.VALIDATING


@pytest.mark.both_databases
def test_jobs_of_different_models_run_beside_each_other(desk: Any) -> None:
    first, second = desk.submit(desk.model()), desk.submit(desk.model())
    assert {desk.claim("w1").job_id, desk.claim("w2").job_id} == {first, second}


@pytest.mark.parametrize("end", ["failed", "rejected", "cancelled"])
def test_a_job_that_ended_badly_frees_the_next(desk: Any, end: str) -> None:
    model = desk.model()
    first, second = desk.submit(model), desk.submit(model)
    desk.set(first, state=end)
    assert desk.claim().job_id == second


@pytest.mark.both_databases
@pytest.mark.parametrize("state", ["paused", "pausing", "cancelling", "validating", "running"])
def test_an_unfinished_job_holds_its_place(desk: Any, state: str) -> None:
    model = desk.model()
    first, _ = desk.submit(model), desk.submit(model)
    desk.set(first, state=state, lease_until=9e9)
    assert claims.claim_job(desk.db, "w", 60) is None


def test_a_resumed_job_runs_before_those_behind_it(desk: Any) -> None:
    model = desk.model()
    first, _ = desk.submit(model), desk.submit(model)
    desk.act(first, JobAction.PAUSE)
    assert claims.claim_job(desk.db, "w", 60) is None
    desk.act(first, JobAction.RESUME)
    assert desk.claim().job_id == first


def test_a_job_that_is_put_off_waits(desk: Any) -> None:
    job_id = desk.submit(desk.model(), not_before=9e9)
    assert claims.claim_job(desk.db, "w", 60) is None
    desk.set(job_id, not_before=1.0)
    assert desk.claim().job_id == job_id


def test_the_first_claim_fixes_the_parent(desk: Any) -> None:
    model = desk.model()
    job_id = desk.submit(model)
    claims.complete_pause_or_cancellation(desk.db, desk.claim())
    desk.change(Alias, (model, "production"), version=7)
    assert desk.claim().parent_version == 0
    assert desk.job(job_id).parent_version == 0


def test_every_claim_of_a_model_has_a_higher_fence(desk: Any) -> None:
    model = desk.model()
    desk.submit(model)
    fences = []
    for _ in range(3):
        claim = desk.claim()
        fences.append(claim.fence)
        claims.complete_pause_or_cancellation(desk.db, claim)
    assert fences == sorted(set(fences))
    assert desk.all(Model, id=model)[0].fence == fences[-1]


def test_a_heartbeat_extends_the_lease_and_shows_the_state_and_with_an_old_fence_says_lost(
    desk: Any,
) -> None:
    desk.submit(desk.model())
    claim = desk.claim(lease_s=5)
    before = desk.job(claim.job_id)
    assert claims.renew_job_lease(desk.db, claim.job_id, claim.fence, 60) is JobState.RUNNING
    assert desk.job(claim.job_id).lease_until > before.lease_until + 50
    assert desk.job(claim.job_id).revision == before.revision
    desk.act(claim.job_id, JobAction.CANCEL)
    assert claims.renew_job_lease(desk.db, claim.job_id, claim.fence, 60) is JobState.CANCELLING
    assert claims.renew_job_lease(desk.db, claim.job_id, claim.fence - 1, 60) is None


@pytest.mark.both_databases
def test_reaping_takes_only_jobs_whose_lease_ran_out(desk: Any) -> None:
    dead, alive = desk.submit(desk.model()), desk.submit(desk.model())
    first, second = desk.claim(), desk.claim()
    desk.expire(first if first.job_id == dead else second)
    assert claims.take_back_jobs_with_expired_lease(desk.db) == [dead]
    assert (desk.state(dead), desk.state(alive)) == (JobState.QUEUED, JobState.RUNNING)
    assert claims.take_back_jobs_with_expired_lease(desk.db) == []


@pytest.mark.both_databases
def test_jobs_of_a_dead_worker_are_taken_before_their_lease_is_over_with_a_strike(
    desk: Any,
) -> None:
    dead, other = desk.submit(desk.model()), desk.submit(desk.model())
    claim = claims.claim_job(desk.db, "dead", 600.0)
    assert claim is not None and claims.claim_job(desk.db, "other", 600.0) is not None
    assert claim.job_id == dead
    assert claims.take_back_jobs_of_dead_worker(desk.db, "dead") == [dead]
    assert (desk.state(dead), desk.state(other)) == (JobState.QUEUED, JobState.RUNNING)
    assert desk.job(dead).strikes == 1
    with pytest.raises(LeaseLost):
        claims.requeue_or_fail_job(desk.db, claim, "it lives after all")
    assert claims.take_back_jobs_of_dead_worker(desk.db, "dead") == []


@pytest.mark.parametrize(
    ("asked", "ends"), [(JobAction.PAUSE, JobState.PAUSED), (JobAction.CANCEL, JobState.CANCELLED)]
)
@pytest.mark.parametrize("how", ["reap", "complete_pause_or_cancellation", "requeue"])
def test_a_stop_that_was_asked_for_is_granted_however_the_attempt_ends(
    desk: Any, asked: JobAction, ends: JobState, how: str
) -> None:
    job_id, claim = desk.begin()
    desk.act(job_id, asked)
    if how == "reap":
        desk.lose(claim)
    elif how == "requeue":
        claims.requeue_or_fail_job(desk.db, claim, "died")
    else:
        getattr(claims, how)(desk.db, claim)
    assert desk.state(job_id) is ends
    assert desk.job(job_id).fence is None


def test_a_job_that_is_given_back_in_order_has_no_strike(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    for _ in range(5):
        claims.complete_pause_or_cancellation(desk.db, desk.claim())
    assert desk.state(job_id) is JobState.QUEUED
    assert (desk.job(job_id).attempt, desk.job(job_id).strikes) == (5, 0)


def test_the_third_lost_attempt_fails_the_job(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    for expected in (JobState.QUEUED, JobState.QUEUED, JobState.FAILED):
        desk.expire(desk.claim())
        claims.take_back_jobs_with_expired_lease(desk.db)
        assert desk.state(job_id) is expected
    assert desk.job(job_id).error["kind"] == "lost"
    assert desk.job(job_id).finished_at is not None


def test_a_snapshot_since_the_claim_clears_the_strikes(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    for _ in range(6):
        claim = desk.claim()
        desk.register(claim)
        claims.requeue_or_fail_job(desk.db, claim, "killed")
    assert desk.state(job_id) is JobState.QUEUED
    for _ in range(3):
        claims.requeue_or_fail_job(desk.db, desk.claim(), "killed at once")
    assert desk.state(job_id) is JobState.FAILED


def test_an_outage_is_no_strike_and_puts_the_job_off(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claims.requeue_or_fail_job(desk.db, desk.claim(), "store out", counts=False)
    assert desk.job(job_id).strikes == 0
    assert claims.claim_job(desk.db, "w", 60) is None


def test_a_rejected_batch_keeps_its_report(desk: Any) -> None:
    job_id = desk.submit(desk.model(), decoded=False)
    report = {"rejected": [{"path": "x", "reason": "empty"}], "rejected_count": 1}
    problem = Rejected("All images are broken.", extra={"report": report})
    assert claims.reject_job(desk.db, desk.claim(), problem) is JobState.REJECTED
    assert desk.job(job_id).error["code"] == "batch-rejected"
    assert desk.task(job_id).report == report
    said = desk.messages(job_id)
    assert said[1:] == ["1 image rejected: x (empty).", "Rejected: All images are broken."]


@pytest.mark.parametrize(
    ("end", "more"),
    [
        (claims.complete_pause_or_cancellation, ()),
        (claims.requeue_or_fail_job, ("x",)),
        (claims.fail_claimed_job_or_trial, ("code", "x")),
        (claims.reject_job, (Rejected("x"),)),
        (claims.finish_job_without_version, (JobOutcome({"valid": True}),)),
    ],
)
def test_a_worker_that_lost_its_lease_cannot_end_the_job(
    desk: Any, end: Any, more: tuple[Any, ...]
) -> None:
    job_id = desk.submit(desk.model())
    zombie = desk.claim("zombie")
    desk.lose(zombie)
    owner = desk.claim("owner")
    with pytest.raises(LeaseLost):
        end(desk.db, zombie, *more)
    job = desk.job(job_id)
    assert (job.state, job.fence, job.worker) == ("running", owner.fence, "owner")


def test_every_change_of_state_is_an_event_with_a_new_revision(desk: Any) -> None:
    job_id, claim = desk.begin(decoded=False)
    claims.fail_claimed_job_or_trial(desk.db, claim, "code", "x")
    states = [
        event.data["state"] for event in desk.all(StoredJobEvent, job_id=job_id, type="state")
    ]
    assert states == ["validating", "failed"]
    assert desk.job(job_id).revision == 3


@pytest.mark.slow
@pytest.mark.both_databases
def test_many_workers_never_share_a_model(desk: Any) -> None:
    """Threads claim and give back as fast as they can; the database would refuse two owners of a
    model.
    """
    models = [desk.model() for _ in range(3)]
    for model in models:
        for _ in range(4):
            desk.submit(model)
    order: dict[str, list[int]] = {model: [] for model in models}
    running: set[str] = set()
    guard, errors = threading.Lock(), []

    def claim_until_idle(name: str) -> None:
        idle = 0
        while idle < 20:
            claim = claims.claim_job(desk.db, name, 60)
            if claim is None:
                idle += 1
                threading.Event().wait(0.002)
                continue
            idle = 0
            with guard:
                if claim.model_id in running:
                    errors.append(claim)
                running.add(claim.model_id)
                order[claim.model_id].append(claim.task_number)
            threading.Event().wait(0.002)
            with guard:
                running.discard(claim.model_id)
            claims.fail_claimed_job_or_trial(desk.db, claim, "code", "done")

    run_at_once(claim_until_idle, ["w0", "w1", "w2", "w3"])
    assert not errors
    assert all(tasks == [1, 2, 3, 4] for tasks in order.values())
