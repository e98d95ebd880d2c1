"""The best state of a running job in the store: registered under the fence, replaced by a better
one, gone after.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from core.database.states import JobAction
from core.database.tables import Job, Model, StoredJobEvent, Task
from core.errors import LeaseLost
from core.ids import new_id
from core.jobs.job_progress import BestStateSummary, read_job_page_data
from core.publishing import anytime
from core.publishing.publish import publish_or_hold_job_result
from core.requests.actor import Actor
from core.scheduling import claim as claims

DAY_S = 86_400.0


def write_best_state(desk: Any, correct: int, *, step: int = 3, content: str = "weights") -> Path:
    """Write a folder as the job process writes it; `content` is that of its only part."""
    folder: Path = desk.folder / new_id("ver")
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "head.safetensors").write_text(content)
    document = {
        "parts": [{"name": "head", "type": "head", "file": "parts/head.safetensors"}],
        "classes": ["1a", "1b"],
        "heads": [],
        "method": {"name": "finetune", "hyper": {}, "state": {}},
        "normalise": {"mean": [0.5], "std": [0.25]},
        "environment": {"torch": "2", "cpu_capability": "x", "threads": 1, "device": "cpu"},
        "steps": step,
        "validation": {"correct": correct, "total": 20},
    }
    (folder / "result.json").write_text(json.dumps(document))
    return folder


def register_best_state(desk: Any, claim: Any, correct: int, **values: Any) -> None:
    anytime.upload_and_register_best_state(
        desk.db, desk.store, claim, write_best_state(desk, correct, **values)
    )


def read_stored_file(desk: Any, job_id: str, name: str) -> bytes:
    return b"".join(desk.store.read(desk.job(job_id).anytime.key + name))


@pytest.fixture
def job(desk: Any) -> tuple[str, Any]:
    """A running job and its claim."""
    return desk.submit(desk.model()), desk.claim()


def test_the_row_names_parts_and_a_manifest_that_says_what_state_it_is(desk: Any, job: Any) -> None:
    job_id, claim = job
    register_best_state(desk, claim, 7, step=12)
    row = desk.job(job_id).anytime
    assert read_stored_file(desk, job_id, "head.safetensors") == b"weights"
    manifest = json.loads(read_stored_file(desk, job_id, "manifest.json"))
    assert manifest["anytime"] == {
        "job": job_id,
        "step": 12,
        "validation": {"correct": 7, "total": 20},
    }
    assert (manifest["version"], manifest["task"], manifest["classes"]) == (None, 1, ["1a", "1b"])
    assert manifest["parts"][0]["sha256"] == row.files["head.safetensors"][0]
    assert desk.keys("anytime/") == sorted(row.store_keys)
    told = [e.data for e in desk.all(StoredJobEvent, job_id=job_id, type="metric")]
    assert told == [{"name": "anytime", "step": 12, "value": 0.35}]


def test_a_better_state_replaces_the_one_before_in_the_store(desk: Any, job: Any) -> None:
    job_id, claim = job
    for correct in (5, 6, 9):
        register_best_state(desk, claim, correct, content=f"state {correct}")
    assert len(desk.keys("anytime/")) == 2
    assert read_stored_file(desk, job_id, "head.safetensors") == b"state 9"


@pytest.mark.parametrize("correct", [4, 9])
def test_an_attempt_that_goes_on_from_an_older_snapshot_does_not_make_it_worse(
    desk: Any, job: Any, correct: int
) -> None:
    job_id, claim = job
    register_best_state(desk, claim, 9, content="good")
    desk.lose(claim)
    register_best_state(desk, desk.claim(), correct, content="again")
    assert read_stored_file(desk, job_id, "head.safetensors") == b"good"
    assert len(desk.keys("anytime/")) == 2


def test_the_state_of_another_recipe_is_replaced_even_by_a_lower_accuracy(
    desk: Any, job: Any
) -> None:
    job_id, claim = job
    register_best_state(desk, claim, 9)
    desk.set(job_id, recipe={"method": {"name": "er"}, "seed": 0})
    register_best_state(desk, claim, 4, content="other recipe")
    assert read_stored_file(desk, job_id, "head.safetensors") == b"other recipe"


def test_a_zombie_cannot_register_or_remove_a_state(desk: Any, job: Any) -> None:
    job_id, zombie = job
    register_best_state(desk, zombie, 5)
    desk.lose(zombie)
    before, keys = desk.job(job_id).anytime, desk.keys("anytime/")
    for _ in ("while nobody owns the job", "while another does"):
        with pytest.raises(LeaseLost):
            register_best_state(desk, zombie, 9, content="late")
        assert desk.job(job_id).anytime == before and desk.keys("anytime/") == keys
        claims.claim_job(desk.db, "owner", 60)


def test_what_a_crash_before_the_row_left_goes_with_the_next_state(
    desk: Any, job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, claim = job
    register_best_state(desk, claim, 5)
    before = desk.job(job_id).anytime
    with monkeypatch.context() as patched:
        patched.setattr(anytime, "lock_claimed_job", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            register_best_state(desk, claim, 6)
    assert desk.job(job_id).anytime == before and len(desk.keys("anytime/")) == 4
    desk.lose(claim)
    register_best_state(desk, desk.claim(), 7)
    assert len(desk.keys("anytime/")) == 2


def test_a_folder_that_is_incomplete_is_refused(desk: Any, job: Any) -> None:
    folder = write_best_state(desk, 5)
    (folder / "parts" / "head.safetensors").unlink()
    with pytest.raises(ValueError, match="head"):
        anytime.upload_and_register_best_state(desk.db, desk.store, job[1], folder)
    assert desk.keys("anytime/") == []


def test_publishing_removes_it(desk: Any, job: Any) -> None:
    job_id, claim = job
    register_best_state(desk, claim, 5)
    desk.publish(claim=claim)
    assert desk.keys("anytime/") == [] and desk.job(job_id).anytime is None


# The sweep.


def test_a_page_tells_the_best_state_until_the_job_is_over(desk: Any, job: Any) -> None:
    job_id, claim = job
    actor = Actor(desk.owner, None, "read")
    assert read_job_page_data(desk.db, actor, job_id).best is None
    for correct, step in ((7, 12), (9, 20)):
        register_best_state(desk, claim, correct, step=step)
    assert read_job_page_data(desk.db, actor, job_id).best == BestStateSummary(
        step=20, accuracy=0.45
    )
    desk.act(job_id, JobAction.CANCEL)
    claims.complete_pause_or_cancellation(desk.db, claim)
    assert read_job_page_data(desk.db, actor, job_id).best is None


@pytest.mark.parametrize("gone", ["model", "data"])
def test_it_goes_at_once_when_its_failed_job_cannot_be_retried(
    desk: Any, job: Any, gone: str
) -> None:
    job_id, claim = job
    register_best_state(desk, claim, 5)
    claims.fail_claimed_job_or_trial(desk.db, claim, "code", "x")
    with desk.db.write() as session:
        row = session.get_one(Job, job_id)
        if gone == "model":
            session.get_one(Model, row.model_id).deleted_at = 1.0
        else:
            session.get_one(Task, row.task_id).data_deleted_at = 1.0
    desk.remove_unwanted_runs()
    assert desk.keys("anytime/") == [] and desk.job(job_id).anytime is None


def test_a_download_of_a_replaced_state_that_was_stored_too_late_goes(desk: Any, job: Any) -> None:
    job_id, claim = job
    register_best_state(desk, claim, 5)
    old = desk.job(job_id).anytime.key
    register_best_state(desk, claim, 6)
    desk.store.put_bytes(f"{old}{'0' * 64}.zip", b"zip")
    new = desk.job(job_id).anytime.key
    desk.store.put_bytes(f"{new}{'1' * 64}.zip", b"zip")
    desk.remove_unwanted_runs()
    assert (
        all(key.startswith(new) for key in desk.keys("anytime/"))
        and len(desk.keys("anytime/")) == 3
    )


def write_result_with_curve(desk: Any) -> Path:
    """Write a result with the ADP of a new task 2 and an earlier task 1."""
    folder: Path = desk.result({"head": "h"}, [("new", 1, 1, 2)])
    document = json.loads((folder / "result.json").read_text())
    point = {"step": 1, "best_step": 1, "validation": 0.5, "accuracy": {"1": 0.25, "2": 0.75}}
    document["adp"] = {"mean": {"1": 0.25, "2": 0.75}, "curve": [point]}
    (folder / "result.json").write_text(json.dumps(document))
    return folder


def test_the_curve_becomes_part_of_the_versions_manifest(desk: Any, job: Any) -> None:
    publish_or_hold_job_result(desk.db, desk.store, job[1], write_result_with_curve(desk))
    adp = desk.manifests(job[1].model_id)[-1]["adp"]
    assert adp["mean"] == {"1": 0.25, "2": 0.75} and adp["curve"][0]["best_step"] == 1


def test_the_curve_is_published_without_tasks_whose_data_was_deleted(desk: Any) -> None:
    model = desk.model()
    desk.submit(model)
    desk.publish({"head": "h"}, [])
    with desk.db.write() as session:
        session.scalars(select(Task).where(Task.model_id == model)).one().data_deleted_at = 1.0
    desk.submit(model)
    publish_or_hold_job_result(desk.db, desk.store, desk.claim(), write_result_with_curve(desk))
    adp = desk.manifests(model)[2]["adp"]
    assert adp["mean"] == {"2": 0.75}
    assert [point["accuracy"] for point in adp["curve"]] == [{"2": 0.75}]
