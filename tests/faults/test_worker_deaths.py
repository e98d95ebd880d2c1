"""Real workers and job processes, killed, stopped and frozen: nothing is lost, repeated or left
behind.
"""

import time
from typing import Any

import pytest
from sqlalchemy import update

from core.admission.admission import AdmissionLimits, NewJobLimits
from core.database.tables import StoredJobEvent
from core.errors import JobTooLarge
from core.tasks import retries
from tests.faults.conftest import ENDLESS, PATIENCE_S, Backend, Digests

pytestmark = pytest.mark.slow


def list_states(shared: Backend, job: str) -> list[str]:
    return [event.data["state"] for event in shared.events(job) if event.type == "state"]


def test_a_job_goes_on_from_its_snapshot_after_a_pause_and_after_its_process_was_killed(
    shared: Backend, batches: list[bytes], undisturbed: Digests
) -> None:
    model = shared.create()
    job = shared.pause(model, batches[0])
    shared.arm("job-consolidate")
    shared.act(job, "resume")
    assert shared.is_run_finished(job).state == "succeeded"
    assert shared.job(job).attempt == 3
    assert list_states(shared, job).count("queued") == 3
    said = [event.data["message"] for event in shared.events(job) if event.type == "log"]
    assert sum(line.startswith("Going on from a snapshot: epoch ") for line in said) == 2
    assert shared.digests(model) == undisturbed[:1]
    shared.await_nothing_left(model)


def test_a_killed_worker_leaves_no_process_and_another_of_its_host_ends_bit_identical_within_its_lease(
    shared: Backend, batches: list[bytes], undisturbed: Digests, all_gone: Any
) -> None:
    model = shared.create()
    job, process = shared.hold_job(model, batches[0])
    worker, next_job = shared.standing_worker(), shared.submit(model, batches[1])
    family = worker.children(recursive=True)
    assert len(family) >= 2
    worker.kill()
    worker.wait()
    shared.end_lease(job, at=time.time() + 86400)
    shared.standing_worker()
    assert shared.job(job).state == "running", "its job process is still there"
    process.resume()
    assert all_gone(family)
    assert [shared.is_run_finished(one).state for one in (job, next_job)] == ["succeeded"] * 2
    assert (shared.job(job).attempt, list_states(shared, job).count("queued")) == (2, 2)
    assert shared.digests(model) == undisturbed
    shared.await_nothing_left(model)


@pytest.mark.campaign
def test_a_worker_killed_beside_a_best_state_leaves_none_and_another_ends_bit_identical(
    backend: Backend, batches: list[bytes]
) -> None:
    recipe = {"anytime": True, "validation": 0.2, "optimizer": {"lr": 0.001}, "epochs": 150}
    models = [backend.create() for _ in range(2)]
    undisturbed, killed = (backend.submit(model, batches[0], recipe) for model in models)
    with backend.worker(PERENNIAL_SNAPSHOT_S="0.2") as worker:
        assert backend.is_run_finished(undisturbed).state == "succeeded"
        backend.until(lambda: backend.job(killed).anytime and backend.job(killed).snapshot)
        worker.kill()
        worker.wait()
    assert [info.key for info in backend.store.list(f"anytime/{killed}/")]
    backend.standing_worker()
    assert backend.is_run_finished(killed).state == "succeeded"
    assert backend.job(killed).attempt == 2
    assert backend.digests(models[0]) == backend.digests(models[1])
    backend.await_nothing_left(models[1])


def test_a_terminated_worker_releases_without_a_strike_and_exits_zero(
    shared: Backend, batches: list[bytes], undisturbed: Digests, all_gone: Any
) -> None:
    model = shared.create()
    job, process = shared.hold_job(model, batches[0])
    worker = shared.standing_worker()
    family = worker.children(recursive=True)
    worker.terminate()
    shared.release_stopping(process)
    assert worker.wait(PATIENCE_S) == 0
    assert all_gone(family)
    stopped = shared.job(job)
    assert (stopped.state, stopped.strikes, stopped.worker) == ("queued", 0, None)
    assert stopped.snapshot is not None
    shared.standing_worker()
    assert shared.is_run_finished(job).state == "succeeded"
    assert shared.digests(model) == undisturbed[:1]
    shared.await_nothing_left(model)


# tests/worker/attempts/test_child.py: a child is heard although its zygote is dead
@pytest.mark.campaign
def test_a_killed_zygote_costs_nothing(
    shared: Backend, batches: list[bytes], undisturbed: Digests
) -> None:
    model = shared.create()
    job, process = shared.hold_job(model, batches[0])
    next_job, zygote = shared.submit(model, batches[1]), process.parent()
    assert zygote is not None and "worker.attempts.zygote" in zygote.cmdline()
    zygote.kill()
    process.resume()
    assert [shared.is_run_finished(one).state for one in (job, next_job)] == ["succeeded"] * 2
    assert [shared.job(one).attempt for one in (job, next_job)] == [1, 1]
    assert shared.digests(model) == undisturbed


# tests/core/publishing/test_publish.py shows that a zombie cannot publish, and
# tests/core/scheduling/test_protocol.py the fences of any order of workers
@pytest.mark.campaign
def test_a_frozen_worker_that_wakes_after_another_finished_publishes_nothing(
    shared: Backend, batches: list[bytes], undisturbed: Digests
) -> None:
    model, frozen = shared.create(), shared.standing_worker()
    job = shared.freeze(frozen, "publish-stored", lambda: shared.submit(model, batches[0]))
    shared.end_lease(job)
    with shared.worker():
        assert shared.is_run_finished(job).state == "succeeded"
    events = len(shared.events(job))
    next_job = shared.submit(model, batches[1])
    frozen.resume()
    assert shared.is_run_finished(next_job).state == "succeeded", "it goes on with other jobs"
    assert shared.has_logged("lease lost; the job is another worker's", job=job)
    assert len(shared.events(job)) == events
    assert shared.job(job).attempt == 2
    assert shared.digests(model) == undisturbed
    shared.await_nothing_left(model)


def test_a_job_whose_process_always_dies_fails_at_the_third_strike(
    shared: Backend, batches: list[bytes]
) -> None:
    model = shared.create()
    for point in ("job-train", "job-consolidate", "job-evaluate"):
        shared.arm(point)
    shared.standing_worker()
    failed = shared.is_run_finished(shared.submit(model, batches[0]))
    assert (failed.state, failed.error["kind"], failed.attempt) == ("failed", "lost", 3)
    assert shared.digests(model) == []


# tests/worker/attempts/test_supervisor.py ends a cancelled child; tests/core/execution stops a job so
@pytest.mark.campaign
def test_a_cancelled_job_ends_its_process_and_leaves_nothing(
    shared: Backend, batches: list[bytes], all_gone: Any
) -> None:
    model = shared.create()
    job = shared.pause(model, batches[0], ENDLESS)
    _, process = shared.hold(lambda: shared.act(job, "resume"))
    shared.act(job, "cancel")
    assert shared.is_run_finished(job).state == "cancelled"
    assert all_gone([process])
    shared.await_nothing_left(model)


@pytest.mark.campaign
def test_two_workers_keep_the_order_of_one_model(
    backend: Backend, batches: list[bytes], undisturbed: Digests
) -> None:
    model = backend.create()
    jobs = [backend.submit(model, batch) for batch in batches]
    with backend.worker(), backend.worker():
        assert [backend.is_run_finished(job).version for job in jobs] == [1, 2]
    assert backend.digests(model) == undisturbed


def test_a_lost_part_of_the_store_is_not_published(shared: Backend, batches: list[bytes]) -> None:
    """The parts are this model's alone: its recipe differs from that of all others."""
    model = shared.create(recipe={"epochs": 2, "seed": 7})
    shared.standing_worker()
    assert shared.is_run_finished(shared.submit(model, batches[0])).state == "succeeded"
    (sha256,) = (sha256 for name, sha256 in shared.digests(model)[0] if name == "head")
    shared.store.delete(f"blobs/{sha256[:2]}/{sha256}")
    assert shared.is_run_finished(shared.submit(model, batches[1])).state == "failed"
    assert shared.production(model) == 1


def test_a_job_that_outgrows_its_bound_fails_with_a_sentence_and_the_worker_goes_on(
    shared: Backend, batches: list[bytes]
) -> None:
    """Admitted as if under a higher bound: one job is far above that of the worker, the next
    within.
    """
    worker = shared.standing_worker()
    large = shared.create(architecture={"name": "mlp", "hidden": [4500, 4500]})
    job = shared.submit(large, batches[0], ENDLESS)
    next_job = shared.submit(shared.create(), batches[0])
    failed = shared.is_run_finished(job)
    assert (failed.state, failed.error["kind"], failed.attempt) == ("failed", "memory", 1)
    assert "more than the 0.2 GB of memory that one job may have here" in failed.error["detail"]
    assert shared.is_run_finished(next_job).state == "succeeded"
    assert shared.standing_worker() is worker
    limits = NewJobLimits(admission=AdmissionLimits.from_settings(shared.settings))
    with pytest.raises(JobTooLarge, match=r"One job may take 0\.2 GB here"):
        retries.retry_job(shared.db, shared.catalogue, shared.actor, job, None, limits)


@pytest.mark.campaign  # tests/core/execution/test_added_kind.py shows it
def test_a_job_that_runs_longer_than_jobs_may_fails_with_a_sentence(
    shared: Backend, batches: list[bytes]
) -> None:
    model = shared.create()
    job, most_s = shared.pause(model, batches[0], ENDLESS), shared.settings.max_job_s
    first = next(one.id for one in shared.events(job) if one.data.get("state") == "validating")
    with shared.db.write() as session:  # as if its first attempt had begun so much earlier
        session.execute(
            update(StoredJobEvent)
            .where(StoredJobEvent.id == first)
            .values(at=StoredJobEvent.at - most_s)
        )
    shared.act(job, "resume")
    failed = shared.is_run_finished(job)
    assert (failed.state, failed.error["kind"]) == ("failed", "time")
    assert "ran longer than the 168.0 hours" in failed.error["detail"]
