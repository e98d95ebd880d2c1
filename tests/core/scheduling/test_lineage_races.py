"""Concurrent users and workers on one model: claims are in turn, without blocking."""

import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from core.database import jobs as job_rows
from core.database.states import JobAction, JobState
from core.database.tables import Alias, Job, Model, StoredJobEvent, Task, Version
from core.errors import LeaseLost, PerennialError
from core.jobs import jobs
from core.publishing.publish import publish_or_hold_job_result
from core.requests.actor import Actor
from core.requests.resources import UseCaseResources
from core.scheduling import claim as claims
from core.tasks import retries, task_decisions
from core.versions import aliases
from tests.core.batches import CATALOGUE

pytestmark = pytest.mark.both_databases


@pytest.fixture
def actor(desk: Any) -> Actor:
    desk.model()  # makes the owner
    return Actor(desk.owner, None, "write")


def queue_after_a_failed_job(desk: Any) -> tuple[str, str]:
    """Return a job that failed, and the next one of its model."""
    model = desk.model()
    first, second = desk.submit(model), desk.submit(model)
    claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "no")
    return first, second


def claim_during_a_retry(desk: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch, job: str) -> Any:
    """Claim a job while another thread retries `job`.

    The retry comes after the claim has read the queue, and before it locks the model.
    """
    locked, thread = claims.lineage.lock_model_row, None

    def retry_given_job() -> None:
        retries.retry_job(desk.db, CATALOGUE, actor, job, None)

    def locked_late(session: Any, model_id: str) -> Any:
        nonlocal thread
        if thread is None and threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=retry_given_job)
            thread.start()
            thread.join(
                0.1 if desk.db.dialect == "sqlite" else 60
            )  # SQLite lets no second writer in
        return locked(session, model_id)

    monkeypatch.setattr(claims.lineage, "lock_model_row", locked_late)
    found = claims.claim_job(desk.db, "w", 60)
    assert thread is not None
    thread.join()
    return found


def test_a_retry_that_comes_between_look_and_lock_is_claimed_first(
    desk: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = queue_after_a_failed_job(desk)
    found = claim_during_a_retry(desk, actor, monkeypatch, first)
    assert found.job_id == (second if desk.db.dialect == "sqlite" else first)
    assert claims.claim_job(desk.db, "w2", 60) is None, "one job of a model at a time"
    assert desk.state(first) in (JobState.QUEUED, JobState.RUNNING)


def test_a_claim_without_the_second_look_is_found(
    desk: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug is what the test above would detect."""
    first, second = queue_after_a_failed_job(desk)
    monkeypatch.setattr(claims, "_is_job_still_eligible", lambda *_: True)
    assert claim_during_a_retry(desk, actor, monkeypatch, first).job_id == second


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite's writers are alone
def test_whoever_holds_the_model_can_write_what_refers_to_a_job_that_another_holds(
    desk: Any,
) -> None:
    """The other transaction waits for the model: waiting for it in turn would be a deadlock."""
    job = desk.submit(desk.model())
    with desk.db.write() as retrying:
        assert job_rows.lock_job(retrying, job) is not None
        with desk.db.write() as promoting:
            promoting.execute(text("SET LOCAL lock_timeout = '3s'"))
            promoting.add(StoredJobEvent(job_id=job, type="log", data={}, at=0.0))


@pytest.mark.slow
def test_people_and_workers_at_once_never_wait_for_each_other_or_break_the_line(
    desk: Any, actor: Actor
) -> None:
    """Three workers and three users act on two models.

    A deadlock of the database would be an error.
    """
    made = [desk.model(gate={"min_new_task": 0.5}) for _ in range(2)]
    for model in made:
        for _ in range(5):
            desk.submit(model, gate={"min_new_task": 0.5})
    errors: list[BaseException] = []
    over = threading.Event()

    def run_random_worker(seed: int) -> None:
        draw = random.Random(seed)
        while not over.is_set():
            claim = claims.claim_job(desk.db, f"w{seed}", 60)
            if claim is None:
                over.wait(0.005)
                continue
            try:
                way = draw.random()
                if way < 0.7:
                    correct = 9 if draw.random() < 0.6 else 1
                    result = desk.result(
                        {"head": claim.job_id}, [("new", claim.task_number, correct, 10)]
                    )
                    publish_or_hold_job_result(desk.db, desk.store, claim, result)
                elif way < 0.85:
                    claims.fail_claimed_job_or_trial(desk.db, claim, "code", "no")
                else:
                    claims.requeue_or_fail_job(desk.db, claim, "died")
            except (PerennialError, LeaseLost):
                claims.complete_pause_or_cancellation(desk.db, claim)

    resources = UseCaseResources(desk.db, desk.blobs, CATALOGUE)
    given = aliases.AliasMoveReasonAndSeenVersion("seen")

    def act_as_random_person(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(15):
            if over.is_set():
                return
            model = draw.choice(made)
            number, version = draw.randint(1, 5), draw.randint(1, 8)
            job = draw.choice(desk.all(Job, model_id=model)).id
            asks: list[Callable[[], object]] = [
                lambda: task_decisions.skip_held_task_and_continue_lineage(
                    desk.db,
                    actor,
                    model,  # noqa: B023
                    number,  # noqa: B023
                    None,
                ),
                lambda: task_decisions.discard_task(desk.db, actor, model, number, None),  # noqa: B023
                lambda: task_decisions.relearn_task(resources, actor, model, number, None),  # noqa: B023
                lambda: retries.retry_job(desk.db, CATALOGUE, actor, job, None),  # noqa: B023
                lambda: jobs.apply_job_action(desk.db, actor, job, JobAction.CANCEL),  # noqa: B023
                lambda: aliases.roll_alias_back(desk.db, actor, model, "production", given),  # noqa: B023
                lambda: aliases.let_production_follow_lineage(
                    desk.db,
                    actor,
                    model,  # noqa: B023
                    "production",
                ),
                lambda: aliases.set_alias(
                    desk.db,
                    actor,
                    model,  # noqa: B023
                    "production",
                    version,  # noqa: B023
                    given,
                ),
            ]
            with contextlib.suppress(PerennialError):
                draw.choice(asks)()
            over.wait(0.002)

    def run_and_record_error(run: Callable[[int], None], seed: int) -> None:
        try:
            run(seed)
        except BaseException as error:
            errors.append(error)
            over.set()
            raise

    workers, people = (
        [threading.Thread(target=run_and_record_error, args=(run, seed)) for seed in range(3)]
        for run in (run_random_worker, act_as_random_person)
    )
    for thread in (*workers, *people):
        thread.start()
    for thread in people:
        thread.join()
    over.set()
    for thread in workers:
        thread.join()
    assert not errors
    with desk.db.read() as session:
        for model in made:
            row = session.get_one(Model, model)
            production = session.get_one(Alias, (model, "production")).version
            versions = {v.number: v for v in desk.all(Version, model_id=model)}
            assert sorted(versions) == list(range(len(versions)))
            assert versions[row.head].status == "published"
            assert not row.production_follows or production == row.head
            learned = {t.number for t in desk.all(Task, model_id=model) if t.standing == "learned"}
            assert learned == set(versions[row.head].manifest.tasks)
