"""Jobs that bring weights: each point of death, whose turn it is, and what is refused. The Hub
itself is in `hub/`."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weights_files import MODEL, NAME, REPOSITORY, build_random_weights

from core.bases.pretrained import PretrainedWeightsPolicy
from core.database.states import JobAction, JobState
from core.database.tables import FetchedPretrainedWeights, Model, Owner, Version
from core.errors import StorageQuotaReached
from core.execution.kinds import fetch
from core.execution.weights import (
    find_weights_or_claim_fetching,
    finish_weights_fetch_and_wake_waiting_jobs,
)
from core.jobs.postponement import JobPutOffSignal
from core.models import model_deletion, models
from core.models.new_model import NewModelAdmissionLimits
from core.recipe.catalogue import load_recipe_catalogue
from core.requests.resources import UseCaseResources
from core.retention import references
from core.scheduling import claim as claims
from tests.core.at_once import run_at_once
from worker.loop import Worker


def compute_weights_digest() -> str:
    """Return the digest of the weights, which are made when a test first needs them."""
    return hashlib.sha256(build_random_weights()).hexdigest()


class Died(BaseException):
    """The worker's process was killed."""


def write_manual_weights(desk: Any, data: bytes) -> Path:
    """Write the file that a person puts into the data directory."""
    folder = desk.folder / "data" / "pretrained"
    folder.mkdir(exist_ok=True)
    path = folder / f"{NAME}.safetensors"
    path.write_bytes(data)
    return Path(path)


def create_waiting_model(desk: Any, name: str = "net", **terms: int) -> tuple[str, str]:
    """Create a model that waits for its weights. Return it and the job that downloads them."""
    if not desk.owner:
        desk.new_owner("team")
    given, catalogue = (
        {"name": name, "scenario": "class", **MODEL},
        load_recipe_catalogue(desk.settings),
    )
    service, limits = (
        UseCaseResources(desk.db, desk.blobs, catalogue),
        NewModelAdmissionLimits(terms=PretrainedWeightsPolicy(**terms)),
    )
    made, _ = models.create_model(service, desk.actor, given, limits=limits)
    return made["id"], str(made["job"])


def read_failure_detail(desk: Any, job: str) -> str:
    row = desk.job(job)
    assert row.state == "failed", row.state
    return str(row.error["detail"])


@pytest.mark.parametrize("point", ["fetch-downloaded", "fetch-stored", "fetch-made"])
def test_a_worker_that_dies_at_any_point_leaves_work_that_the_next_one_ends(
    desk: Any, worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    write_manual_weights(desk, build_random_weights())
    model, job = create_waiting_model(desk)

    def die_at_point(at: str) -> None:
        if at == point:
            raise Died

    with monkeypatch.context() as dying:
        dying.setattr(fetch, "hit_failpoint", die_at_point)
        with pytest.raises(Died):
            worker().run_jobs(lambda: False)
    desk.set(job, lease_until=1.0)
    assert claims.take_back_jobs_with_expired_lease(desk.db) == [job]
    assert worker().run_jobs(lambda: False) == 1
    assert desk.state(job) is JobState.SUCCEEDED
    (version,) = desk.all(Version, model_id=model)
    assert (version.number, version.manifest.base.sha256) == (0, compute_weights_digest())
    assert version.manifest.normalise is not None
    assert desk.aliases(model) == {"latest": 0, "production": 0}
    (row,) = desk.all(FetchedPretrainedWeights)
    assert (row.repository, row.sha256, row.bytes, row.job_id) == (
        REPOSITORY,
        compute_weights_digest(),
        len(build_random_weights()),
        None,
    )


def test_a_batch_is_claimed_only_when_version_0_is_there(
    desk: Any, worker: Callable[..., Worker]
) -> None:
    write_manual_weights(desk, build_random_weights())
    model, job = create_waiting_model(desk)
    task = desk.submit(model)
    assert desk.claim().job_id == job
    assert claims.claim_job(desk.db, "w2", 60.0) is None
    desk.set(job, state="queued", fence=None, worker=None, lease_until=None)
    worker().run_jobs(lambda: desk.state(job) is JobState.SUCCEEDED)
    assert desk.claim().job_id == task


def test_the_same_weights_are_brought_by_one_job_at_a_time_and_its_end_wakes_the_others(
    desk: Any,
) -> None:
    create_waiting_model(desk, "one")
    create_waiting_model(desk, "two")
    first, second = desk.claim("w1"), desk.claim("w2")
    assert find_weights_or_claim_fetching(desk.db, desk.blobs, first, REPOSITORY, 2) is None
    with pytest.raises(JobPutOffSignal, match="another job brings the same weights") as later:
        find_weights_or_claim_fetching(desk.db, desk.blobs, second, REPOSITORY, 2)
    claims.put_off_claimed_job(desk.db, second, str(later.value), later.value.seconds)
    assert claims.claim_job(desk.db, "w2", 60.0) is None
    finish_weights_fetch_and_wake_waiting_jobs(desk.db, first)
    again = desk.claim("w2")
    assert (again.job_id, desk.job(again.job_id).strikes) == (second.job_id, 0)
    assert find_weights_or_claim_fetching(desk.db, desk.blobs, again, REPOSITORY, 2) is None


@pytest.mark.both_databases
def test_of_two_jobs_that_ask_at_the_same_moment_one_brings_the_weights(desk: Any) -> None:
    create_waiting_model(desk, "one")
    create_waiting_model(desk, "two")

    def find_or_claim_weights(claim: Any) -> bool:
        try:
            return find_weights_or_claim_fetching(desk.db, desk.blobs, claim, REPOSITORY, 2) is None
        except JobPutOffSignal:
            return False

    assert sorted(run_at_once(find_or_claim_weights, [desk.claim("w1"), desk.claim("w2")])) == [
        False,
        True,
    ]


def test_no_more_jobs_than_asked_for_bring_weights_and_one_whose_worker_died_is_none(
    desk: Any,
) -> None:
    create_waiting_model(desk, "one")
    create_waiting_model(desk, "two")
    first, second = desk.claim("w1"), desk.claim("w2")
    assert find_weights_or_claim_fetching(desk.db, desk.blobs, first, REPOSITORY, 1) is None
    with pytest.raises(JobPutOffSignal, match="1 jobs bring weights"):
        find_weights_or_claim_fetching(desk.db, desk.blobs, second, "timm/other", 1)
    desk.lose(first)
    assert find_weights_or_claim_fetching(desk.db, desk.blobs, second, "timm/other", 1) is None


def test_weights_of_another_architecture_are_refused_with_what_can_be_done(
    desk: Any, worker: Callable[..., Worker]
) -> None:
    path = write_manual_weights(desk, build_random_weights("test_vit.r160_in1k"))
    _, job = create_waiting_model(desk)
    worker().run_jobs(lambda: False)
    said = read_failure_detail(desk, job)
    assert said.startswith(f"What was brought does not fit {NAME}: ")
    assert f"/v1/jobs/{job}/retry" in said and path.exists()
    assert desk.keys("blobs/") == []


def test_where_the_hub_is_off_a_job_says_what_to_copy_where(
    desk: Any, worker: Callable[..., Worker]
) -> None:
    _, job = create_waiting_model(desk)
    worker().run_jobs(lambda: False)
    assert desk.job(job).error["kind"] == "weights"
    said = read_failure_detail(desk, job)
    assert said.startswith("PERENNIAL_HUB is off where the worker runs. Put model.safetensors of")
    assert f"as pretrained/{NAME}.safetensors into the data directory" in said


def test_an_owner_without_room_gets_no_weights_and_once_they_are_there_they_count(
    desk: Any, worker: Callable[..., Worker]
) -> None:
    write_manual_weights(desk, build_random_weights())
    _, job = create_waiting_model(desk)
    worker(max_owner_bytes=len(build_random_weights()) - 1).run_jobs(lambda: False)
    assert "bytes that one owner may store" in read_failure_detail(desk, job)
    desk.act(job, JobAction.RETRY)
    worker(max_owner_bytes=len(build_random_weights())).run_jobs(lambda: False)
    assert desk.state(job) is JobState.SUCCEEDED
    (owner,) = desk.all(Owner, id=desk.owner)
    assert owner.bytes == len(build_random_weights())
    with pytest.raises(StorageQuotaReached):
        create_waiting_model(desk, "more", max_owner_bytes=len(build_random_weights()))


def test_a_cancelled_job_makes_no_version_though_its_weights_are_stored(
    desk: Any, worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manual_weights(desk, build_random_weights())
    model, job = create_waiting_model(desk)

    def cancel_once_stored(at: str) -> None:
        if at == "fetch-stored":
            desk.act(job, JobAction.CANCEL)

    monkeypatch.setattr(fetch, "hit_failpoint", cancel_once_stored)
    worker().run_jobs(lambda: False)
    assert desk.state(job) is JobState.CANCELLED
    assert desk.all(Version, model_id=model) == []
    assert desk.all(Model, id=model)[0].base_job == job


def test_weights_are_named_like_an_upload_and_gone_with_the_last_model(
    desk: Any, worker: Callable[..., Worker]
) -> None:
    write_manual_weights(desk, build_random_weights())
    model, _ = create_waiting_model(desk)
    worker().run_jobs(lambda: False)
    with desk.db.read() as session:
        assert references.find_digests_still_in_use(session, [compute_weights_digest()]) == {
            compute_weights_digest()
        }
    model_deletion.delete_model(desk.db, desk.store, desk.blobs, desk.actor, model)
    assert desk.keys("blobs/") == []
    _, job = create_waiting_model(desk, "again")
    worker().run_jobs(lambda: False)
    assert desk.state(job) is JobState.SUCCEEDED
