"""The child's specification: local files only, a pure function of the claim's rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from sqlalchemy import update

from core.database.tables import Task, VersionPart, VersionTaskResult
from core.errors import Invalid, InvalidRecipe, LeaseLost, StoredObjectDamaged
from core.execution.prepare import fetch_job_inputs_and_write_spec
from core.retention import damage
from core.storage import Blobs


def read_job_spec(desk: Any, claim: Any) -> dict[str, Any]:
    path = fetch_job_inputs_and_write_spec(
        desk.db, desk.store, claim, desk.settings, desk.folder / f"job-{claim.fence}"
    )
    return json.loads(path.read_text())


def publish_version(desk: Any, model: str, cells: list[tuple[str, int, int, int]]) -> None:
    desk.submit(model)
    desk.publish({"backbone.1": "b", "head": "h"}, cells)


def test_the_first_task_starts_from_the_base(desk: Any) -> None:
    model = desk.model()
    desk.submit(model)
    claim = desk.claim()
    spec = read_job_spec(desk, claim)
    assert spec["architecture"] == {"name": "small-cnn"}
    assert spec["task"]["number"] == 1
    assert spec["task"]["classes"] == ["1a", "1b"]
    assert Path(spec["task"]["train"]).read_text() == f"train {model} 1"
    assert Path(spec["task"]["held_out"]).read_text() == f"held-out {model} 1"
    assert spec["history"] == []
    assert spec["parent"] == spec["base"]
    assert spec["base"]["version"] == 0
    assert spec["base"]["parts"] == []
    assert spec["base"]["manifest"]["init"] == {"kind": "random", "seed": 0}
    assert (spec["classes"], spec["snapshot"]) == (None, None)
    assert (spec["threads"], spec["device"]) == (1, "auto")


def test_a_later_task_knows_its_parent_and_the_tasks_before(desk: Any) -> None:
    model = desk.model()
    publish_version(desk, model, [("new", 1, 9, 10)])
    desk.submit(model)
    spec = read_job_spec(desk, desk.claim())
    assert spec["parent"]["version"] == 1
    assert [(part["name"], Path(part["path"]).read_text()) for part in spec["parent"]["parts"]] == [
        ("backbone.1", "b"),
        ("head", "h"),
    ]
    assert [(past["number"], past["classes"]) for past in spec["history"]] == [(1, ["1a", "1b"])]
    assert Path(spec["history"][0]["held_out"]).is_file()


@pytest.mark.parametrize("gone", [False, True])
def test_tasks_bring_the_hashes_of_their_images_where_these_are_kept(desk: Any, gone: bool) -> None:
    model = desk.model()
    publish_version(desk, model, [("new", 1, 9, 10)])
    digest = desk.blob("hashes")
    past = desk.task_of(model, 1)
    desk.change(Task, past.id, traces_sha256=digest, held_out_deleted_at=1.0 if gone else None)
    desk.submit(model)
    (found,) = read_job_spec(desk, desk.claim())["history"]
    assert found["traces"] == (None if gone else str(desk.blobs.fetch_verified_file(digest)))


def test_only_what_the_parent_was_taught_is_history(desk: Any) -> None:
    model = desk.model()
    publish_version(desk, model, [("new", 1, 9, 10)])
    publish_version(desk, model, [("new", 1, 9, 10), ("new", 2, 9, 10)])
    desk.roll_back(model)
    desk.submit(model)
    spec = read_job_spec(desk, desk.claim())
    assert (spec["parent"]["version"], [past["number"] for past in spec["history"]]) == (1, [1])


@pytest.mark.parametrize("gone", ["held_out_deleted_at", "data_deleted_at"])
def test_deleted_held_out_images_are_null(desk: Any, gone: str) -> None:
    model = desk.model()
    publish_version(desk, model, [("new", 1, 9, 10)])
    with desk.db.write() as session:
        setattr(session.get_one(Task, desk.all(Task, model_id=model)[0].id), gone, 1.0)
    desk.submit(model)
    assert read_job_spec(desk, desk.claim())["history"][0]["held_out"] is None


def test_a_deleted_memory_is_left_out_and_told(desk: Any) -> None:
    model = desk.model()
    desk.submit(model)
    parts = {"head": "h", "buffer": "images"}
    desk.publish(parts, [("new", 1, 9, 10)])
    assert desk.all(VersionPart)[1].type == "buffer"
    with desk.db.write() as session:
        session.get_one(
            VersionPart, (desk.all(VersionPart)[1].version_id, "buffer")
        ).deleted_at = 1.0
    desk.blobs.delete(desk.all(VersionPart)[1].sha256)
    desk.submit(model)
    parent = read_job_spec(desk, desk.claim())["parent"]
    assert ([part["name"] for part in parent["parts"]], parent["deleted"]) == (["head"], ["buffer"])


def test_the_classes_of_a_data_model_are_the_models_own(desk: Any) -> None:
    desk.submit(desk.model("data", classes=["1a", "1b", "never seen"]))
    assert read_job_spec(desk, desk.claim())["classes"] == ["1a", "1b", "never seen"]


def test_a_second_attempt_gets_the_same_specification_and_the_snapshot(desk: Any) -> None:
    _, claim = desk.begin()
    first = read_job_spec(desk, claim)
    desk.register(claim)
    desk.lose(claim)
    second = read_job_spec(desk, desk.claim())
    assert Path(second["snapshot"], "snapshot.json").is_file()
    for name in ("snapshot", "out"):
        first.pop(name), second.pop(name)
    assert first == second


def test_the_recipe_is_complete_also_where_older_code_stored_less(desk: Any) -> None:
    desk.set(desk.submit(desk.model()), recipe={"method": {"name": "er"}, "epochs": 3})
    recipe = read_job_spec(desk, desk.claim())["recipe"]
    assert recipe["method"] == {"name": "er", "buffer": 500, "replay_batch": None}
    assert (recipe["epochs"], recipe["batch_size"], recipe["optimizer"]["name"]) == (3, 32, "sgd")


def test_a_recipe_that_this_code_cannot_use_is_a_plain_answer(desk: Any) -> None:
    desk.set(desk.submit(desk.model()), recipe={"method": {"name": "gone"}})
    with pytest.raises(InvalidRecipe, match=r"method\.name: unknown method"):
        read_job_spec(desk, desk.claim())


def test_deleted_training_data_is_a_plain_answer(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    with desk.db.write() as session:
        session.get_one(Task, desk.task(job_id).id).train_deleted_at = 1.0
    with pytest.raises(Invalid, match="was deleted"):
        read_job_spec(desk, desk.claim())


def test_a_missing_blob_is_named(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    desk.blobs.delete(desk.task(job_id).train_sha256)
    with pytest.raises(
        StoredObjectDamaged, match=r"A file of task 1 is damaged.*send the batch again"
    ):
        read_job_spec(desk, desk.claim())


def test_a_job_does_not_learn_from_what_the_scrub_found_damaged_though_this_process_trusts_it(
    desk: Any,
) -> None:
    job_id, claim = desk.begin()
    read_job_spec(desk, claim)  # hashes it
    with desk.db.write() as session:
        damage.mark_object_damaged_and_delete_downloads(
            session, Blobs.make_blob_key(desk.task(job_id).train_sha256), "digest", "", 1.0
        )
    with pytest.raises(StoredObjectDamaged, match="A file of task 1 is damaged"):
        read_job_spec(desk, claim)


def test_a_zombie_prepares_nothing(desk: Any) -> None:
    desk.submit(desk.model())
    zombie = desk.claim()
    desk.lose(zombie)
    with pytest.raises(LeaseLost):
        read_job_spec(desk, zombie)


def test_the_parent_brings_its_probe_of_earlier_tasks(desk: Any) -> None:
    """Figures are stored beside the manifest, where a job would not find them."""
    model, probe = desk.model(), {"all": [9, 10], "tasks": {"1": [9, 10]}, "before": {}}
    desk.submit(model)
    desk.publish({"head": "h"}, [("new", 1, 9, 10)], knn_probe=probe)
    desk.submit(model)
    assert read_job_spec(desk, desk.claim())["parent"]["manifest"]["knn_probe"] == probe


def test_answers_of_many_tasks_cost_no_more_reads_of_their_blob(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    fetch = Blobs.fetch_verified_file
    monkeypatch.setattr(
        Blobs,
        "fetch_verified_file",
        lambda blobs, sha256: fetched.append(sha256) or fetch(blobs, sha256),
    )

    def count_reads(tasks: int) -> int:
        model = desk.model()
        for age in range(1, tasks + 1):
            publish_version(desk, model, [("new", task, 9, 10) for task in range(1, age + 1)])
        file = tmp_path / model
        save_file({"rows": np.full(tasks, tasks, np.int32)}, file)
        digest, _ = desk.blobs.put_file(file)
        with desk.db.write() as session:
            session.execute(
                update(VersionTaskResult)
                .where(VersionTaskResult.model_id == model)
                .values(answers=digest)
            )
        desk.submit(model)
        fetched.clear()
        read_job_spec(desk, desk.claim())
        return fetched.count(digest)

    assert count_reads(2) == count_reads(5) == 1
