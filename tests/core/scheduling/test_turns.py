"""Fair scheduling: one owner's long queue does not delay the others, on both databases."""

import random
import time
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import select

from core.database.tables import Job, Task
from core.ids import new_id
from core.scheduling import claim as claims
from core.scheduling import turns
from core.scheduling.turns import OwnerSchedulingTurn
from tests.core.at_once import run_at_once


def queue_jobs(desk: Any, jobs: int, *, models: int | None = None) -> list[str]:
    """Queue jobs of the desk's owner, each of a model of its own unless `models` is given."""
    made = [desk.model() for _ in range(models or jobs)]
    return [desk.submit(made[n % len(made)], decoded=False) for n in range(jobs)]


def count_claims_before(desk: Any, job: str, *, workers: int) -> int:
    """Return the number of claims that come before that of a job.

    Each worker ends its job before it claims another.
    """
    busy: list[Any] = []
    for before in range(1000):
        if len(busy) == workers:
            claims.fail_claimed_job_or_trial(desk.db, busy.pop(0), "code", "done")
        found = claims.claim_job(desk.db, "w", 60)
        assert found is not None
        if found.job_id == job:
            return before
        busy.append(found)
    raise AssertionError("never claimed")


@pytest.mark.parametrize("workers", [1, 4])
def test_many_jobs_of_one_owner_keep_a_single_one_of_another_waiting_for_one_round(
    desk: Any, workers: int
) -> None:
    desk.new_owner("many")
    queue_jobs(desk, 40, models=10)
    first = [desk.claim() for _ in range(workers)]  # they are at work when the other comes
    desk.new_owner("one")
    (job,) = queue_jobs(desk, 1)
    for claim in first:
        claims.fail_claimed_job_or_trial(desk.db, claim, "code", "done")
    assert count_claims_before(desk, job, workers=workers) <= 1


def test_the_owner_with_the_least_running_jobs_comes_first(desk: Any) -> None:
    desk.new_owner("many")
    first, *_ = queue_jobs(desk, 3)
    assert desk.claim().job_id == first
    desk.new_owner("one")
    (job,) = queue_jobs(desk, 1)
    assert desk.claim().job_id == job


@pytest.mark.both_databases
def test_a_lone_worker_serves_owners_in_turn(desk: Any) -> None:
    wanted = []
    for name in ("a", "b", "c"):
        wanted.append(desk.new_owner(name))
        queue_jobs(desk, 4)
    served = []
    for _ in range(12):
        claim = desk.claim()
        served.append(desk.job(claim.job_id).owner_id)
        claims.fail_claimed_job_or_trial(desk.db, claim, "code", "done")
    assert served == wanted * 4


@pytest.mark.parametrize(
    "whose",
    [pytest.param((0, 0), id="of one owner"), pytest.param((1, 0), id="of owners never served")],
)
def test_jobs_are_claimed_by_their_age(desk: Any, whose: tuple[int, int]) -> None:
    ids, queued = [desk.new_owner(name) for name in "ab"], []
    for which in whose:
        desk.owner = ids[which]
        queued += queue_jobs(desk, 1)
        time.sleep(0.002)  # ids of jobs carry milliseconds
    assert [desk.claim().job_id, desk.claim().job_id] == queued


@pytest.mark.both_databases
def test_an_owner_whose_jobs_all_wait_for_something_takes_nobodys_turn(desk: Any) -> None:
    desk.new_owner("stopped")
    model = desk.model()
    desk.submit(model)
    claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "no")
    desk.change(Task, desk.all(Task)[0].id, stops=True)
    desk.submit(model)
    desk.new_owner("other")
    (job,) = queue_jobs(desk, 1)
    assert desk.claim().job_id == job
    assert claims.claim_job(desk.db, "w", 60) is None


@pytest.mark.slow
@pytest.mark.both_databases
def test_any_mix_of_owners_and_workers_is_served_by_the_least_running_then_the_longest_ago(
    desk: Any,
) -> None:
    """The order is compared with the simplest rule, on random submits, claims and ends."""
    draw = random.Random(7)
    owners = [desk.new_owner(f"owner-{n}") for n in range(4)]
    waiting: dict[str, list[str]] = {one: [] for one in owners}
    running: list[tuple[str, Any]] = []
    served: dict[str, int] = dict.fromkeys(owners, 0)
    age: dict[str, float] = {}
    for step in range(1, 60):
        if draw.random() < 0.5:
            desk.owner = draw.choice(owners)
            (job,) = queue_jobs(desk, 1)
            waiting[desk.owner].append(job)
            age[job] = step
        elif running and draw.random() < 0.5:
            _, claim = running.pop(draw.randrange(len(running)))
            claims.fail_claimed_job_or_trial(desk.db, claim, "code", "done")
        else:
            count = Counter(one for one, _ in running)
            able = [one for one in owners if waiting[one]]
            turn = min(
                able, key=lambda one: (count[one], served[one], age[waiting[one][0]]), default=None
            )
            claim = claims.claim_job(desk.db, "w", 60)
            assert (claim and claim.job_id) == (turn and waiting[turn][0]), step
            if claim is not None and turn is not None:
                waiting[turn].pop(0)
                served[turn] = step
                running.append((turn, claim))


def test_a_claim_passes_over_an_owner_whose_jobs_other_workers_are_claiming(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first owner in turn has no job left when the claim is made, so the next one is served."""
    gone = desk.new_owner("gone")
    there = desk.new_owner("there")
    (job,) = queue_jobs(desk, 1)
    in_order = [
        OwnerSchedulingTurn(gone, new_id("job"), False),
        OwnerSchedulingTurn(there, job, False),
    ]
    monkeypatch.setattr(turns, "list_owner_scheduling_turns", lambda *_: in_order)
    assert desk.claim().job_id == job


@pytest.mark.parametrize(
    "database",
    [pytest.param("postgresql", marks=pytest.mark.services("postgresql"))],
    indirect=True,
)
def test_an_owners_next_job_is_claimed_while_another_worker_claims_his_oldest(desk: Any) -> None:
    desk.new_owner("a")
    oldest, second = queue_jobs(desk, 2)
    with desk.db.write() as session:
        session.execute(select(Job).where(Job.id == oldest).with_for_update())
        assert desk.claim().job_id == second


@pytest.mark.both_databases
def test_workers_that_claim_at_once_serve_everybody_and_nobody_twice(desk: Any) -> None:
    wanted = []
    for name in "abc":
        desk.new_owner(name)
        wanted += queue_jobs(desk, 5)
    claimed: list[str] = []

    def claim_all_jobs(name: str) -> None:
        while (found := claims.claim_job(desk.db, name, 60)) is not None:
            claimed.append(found.job_id)

    run_at_once(claim_all_jobs, ["w0", "w1", "w2", "w3"])
    assert sorted(claimed) == sorted(wanted)
