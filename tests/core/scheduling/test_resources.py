"""Resources that jobs ask for and workers offer, and the device on which an interrupted job
continues.
"""

from typing import Any

import pytest

from core.jobs import job_response, workers
from core.jobs.jobs import set_job_devices_and_drop_unfit_snapshot
from core.jobs.workers import WorkerDevice
from core.scheduling import claim as claims
from core.scheduling.eligible import WorkerResources

CPU, GPU, TWO = WorkerResources("cpu", 0), WorkerResources("cuda", 1), WorkerResources("cuda", 2)


def claim_with_resources(desk: Any, offer: WorkerResources) -> Any:
    return claims.claim_job(desk.db, "w", 60, offer)


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("asked", "offer", "runs_on"),
    [
        ({}, CPU, "cpu"),
        ({}, GPU, "cuda"),
        ({"device": "cpu"}, GPU, "cpu"),
        ({"device": "cuda"}, CPU, None),
        ({"device": "cuda"}, GPU, "cuda"),
        ({"device": "cuda", "gpus": 2}, GPU, None),
        ({"device": "cuda", "gpus": 2}, TWO, "cuda"),
    ],
)
def test_a_worker_claims_only_what_it_can_run(
    desk: Any, asked: dict[str, Any], offer: WorkerResources, runs_on: str | None
) -> None:
    job_id = desk.submit(desk.model(), **asked)
    claim = claim_with_resources(desk, offer)
    assert (claim and (claim.job_id, claim.device)) == (runs_on and (job_id, runs_on))


def test_a_job_that_waits_for_a_gpu_holds_up_no_other_model(desk: Any) -> None:
    desk.submit(desk.model(), device="cuda")
    other = desk.submit(desk.model())
    assert claim_with_resources(desk, CPU).job_id == other


@pytest.mark.parametrize(
    ("begun_on", "resume", "offer", "goes_on_on"),
    [
        (GPU, "same", CPU, None),
        (GPU, "same", GPU, "cuda"),
        (GPU, "any", CPU, "cpu"),
        (CPU, "same", GPU, "cpu"),  # every worker has a CPU
        (CPU, "any", GPU, "cuda"),
    ],
)
def test_a_snapshot_goes_on_on_its_kind_of_device_unless_the_recipe_says_any(
    desk: Any,
    begun_on: WorkerResources,
    resume: str,
    offer: WorkerResources,
    goes_on_on: str | None,
) -> None:
    job_id = desk.submit(desk.model(), recipe={"resources": {"resume": resume}})
    claim = claim_with_resources(desk, begun_on)
    desk.register(claim, "weights")
    desk.lose(claim)
    later = claim_with_resources(desk, offer)
    assert (later and later.device) == goes_on_on
    assert desk.job(job_id).snapshot is not None


@pytest.mark.parametrize(
    ("asked", "resume_on", "stays"),
    [
        ({}, "cuda", True),
        ({"device": "cpu"}, None, False),
        ({"device": "cuda"}, "cuda", True),
        ({"device": "cpu", "resume": "any"}, None, True),
    ],
)
def test_a_retry_leaves_a_snapshot_of_another_device_behind_unless_it_may_move(
    desk: Any, asked: dict[str, Any], resume_on: str | None, stays: bool
) -> None:
    job_id = desk.submit(desk.model())
    desk.register(claim_with_resources(desk, GPU), "weights")
    job = desk.job(job_id)
    job.recipe = {"resources": asked}
    set_job_devices_and_drop_unfit_snapshot(job)
    assert (job.device, job.resume_on) == (asked.get("device", "any"), resume_on)
    assert (job.snapshot is not None) is stays


def test_memory_that_lacks_again_after_a_snapshot_ends_the_job(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    for attempt, state in ((1, "queued"), (2, "failed")):
        claim = claim_with_resources(desk, GPU)
        desk.register(claim, f"snapshot of attempt {attempt}")
        assert (
            claims.count_out_of_memory_and_requeue_or_fail_job(
                desk.db, claim, "out of memory", "72 GB at its peak"
            )
            == state
        )
    assert desk.job(job_id).error["detail"] == "72 GB at its peak"


@pytest.mark.both_databases
def test_a_job_says_since_when_no_worker_has_the_gpu_that_it_needs(desk: Any) -> None:
    job_id = desk.submit(desk.model(), device="cuda")

    def after_report(problem: str | None, ago_s: float) -> Any:
        with desk.db.write() as session:
            workers.record_worker_presence(
                session, "w", WorkerDevice("cuda", 1, problem), desk.now() - ago_s
            )
            return waits_for(session)

    def waits_for(session: Any) -> Any:
        return job_response.build_job_response(session, desk.job(job_id))["waiting_for"]

    with desk.db.write() as session:
        never = waits_for(session)
    assert never["kind"] == "device"
    assert "no worker with a CUDA device has reported for a day" in never["detail"]
    assert "has reported since 2" in after_report(None, 2 * workers.SEEN_S)["detail"]
    assert after_report(None, 0.0) is None
    assert after_report("ECC", 0.0)["kind"] == "device"
    with desk.db.read() as session:
        assert workers.read_workers_status(session, desk.now()) == "device lost"
        assert workers.count_present_workers(session, desk.now())["cuda", "lost"] == 1


def test_workers_of_yesterday_are_forgotten(desk: Any) -> None:
    with desk.db.write() as session:
        workers.record_worker_presence(
            session, "old", WorkerDevice("cuda", 1), desk.now() - workers.KEPT_S - 1
        )
        workers.record_worker_presence(session, "new", WorkerDevice("cpu"), desk.now())
        assert workers.list_last_reports_by_cuda_count(session) == []
        assert workers.read_workers_status(session, desk.now()) == "up"


@pytest.mark.both_databases
def test_a_worker_that_begins_learns_since_when_the_database_has_answered(desk: Any) -> None:
    now = desk.now()
    with desk.db.write() as session:
        workers.record_worker_presence(session, "dead", WorkerDevice("cpu"), now - 100, now - 900)
        workers.record_worker_presence(session, "young", WorkerDevice("cpu"), now - 5, now - 20)
        workers.record_worker_presence(session, "older code", WorkerDevice("cpu"), now - 5)
        assert workers.read_database_available_since(session, now - 10, now) == now - 20
        assert workers.read_database_available_since(session, now - 1, now) is None
