"""Features of held-out images in the store: named by their task, used for the same backbone, gone
with the images.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sqlalchemy.orm import Session

from core.database.tables import Model, Task, VersionPart
from core.execution.prepare import fetch_job_inputs_and_write_spec
from core.publishing.publish import publish_or_hold_job_result
from core.retention import references
from core.retention.damage import DatabaseDamageMarks
from core.tasks.tasks import delete_task_data
from core.usage import usage_sums
from tests.core.desk import Desk

SAME = {"backbone.1": "never moves", "head": "h"}


def publish_version(desk: Desk, model: str, parts: dict[str, str] = SAME, fill: float = 0.0) -> str:
    """Publish the next version with features of its task's held-out images, and return their
    digest.
    """
    _, claim = desk.begin(model)
    number = claim.task_number or 0
    described = [{"task": number, "file": "features/1.safetensors"}]
    result = desk.result(parts, [("new", number, 1, 2)], held_out_features=described)
    (result / "features").mkdir()
    path = result / "features" / "1.safetensors"
    save_file({"features": torch.full((2, 3), fill + number)}, path)
    publish_or_hold_job_result(desk.db, desk.store, claim, result)
    return (
        desk.blobs.put_file(path)[0]
        if desk.task_of(model, number).held_out_deleted_at is None
        else ""
    )


def read_history_from_spec(desk: Desk, model: str) -> list[dict[str, Any]]:
    """Return the history in the specification of the model's next job."""
    desk.submit(model)
    claim = desk.claim()
    path = fetch_job_inputs_and_write_spec(
        desk.db, desk.store, claim, desk.settings, desk.folder / claim.job_id
    )
    found: list[dict[str, Any]] = json.loads(path.read_text())["history"]
    return found


def test_a_job_gets_the_features_of_its_own_model_by_the_backbone_of_its_parent(desk: Desk) -> None:
    model, other = desk.model(), desk.model()
    digests = [publish_version(desk, model), publish_version(desk, model)]
    publish_version(desk, other)
    stored = desk.blobs.fetch_verified_file
    assert [Path(task["features"]).name for task in read_history_from_spec(desk, model)] == [
        stored(digest).name for digest in digests
    ]
    (elsewhere,) = read_history_from_spec(desk, other)
    assert elsewhere["features"] == str(
        desk.blobs.fetch_verified_file(digests[0])
    )  # equal bytes, named by its own task


@pytest.mark.parametrize("change", ["backbone", "images", "damage", "mark"])
def test_of_another_backbone_other_images_or_damaged_bytes_there_are_no_features(
    desk: Desk, change: str
) -> None:
    model = desk.model()
    digest = publish_version(desk, model)
    if change == "backbone":
        publish_version(desk, model, {"backbone.1": "moved", "head": "h"})
    elif change == "images":
        desk.change(Task, desk.task_of(model, 1).id, held_out_sha256=desk.blob("decoded otherwise"))
    elif change == "mark":
        DatabaseDamageMarks(desk.db).mark_damaged(desk.blobs.make_blob_key(digest))
    else:
        desk.store.put_bytes(desk.blobs.make_blob_key(digest), b"rot")
    first = read_history_from_spec(desk, model)[0]
    assert first["features"] is None and first["held_out"] is not None


@pytest.mark.both_databases
def test_features_count_as_the_models_bytes_and_go_with_the_tasks_images(desk: Desk) -> None:
    model = desk.model()
    digest = publish_version(desk, model)

    def sum_dataset_bytes(session: Session) -> int:
        return usage_sums.sum_usage_by_model(session, Model.id == model)[model]["bytes"]["datasets"]

    size = desk.task_of(model, 1).features_bytes
    with desk.db.read() as session:
        before = sum_dataset_bytes(session)
        assert references.find_digests_still_in_use(session, [digest]) == {digest}
    with desk.db.write() as session:
        session.get_one(Task, desk.task_of(model, 1).id).features_sha256 = None
        session.flush()
        assert size and before - sum_dataset_bytes(session) == size
        session.rollback()
    delete_task_data(desk.db, desk.store, desk.blobs, desk.actor, model, 1)
    with desk.db.read() as session:
        assert not references.find_digests_still_in_use(session, [digest])
    assert not desk.blobs.has(digest)
    assert read_history_from_spec(desk, model)[0]["features"] is None


def test_of_images_that_go_with_the_publish_no_features_are_left(desk: Desk) -> None:
    publish_version(desk, desk.model(held_out="counts"))
    named = {part.sha256 for part in desk.all(VersionPart)}
    named |= {
        digest for task in desk.all(Task) for digest in (task.train_sha256, task.traces_sha256)
    }
    assert {key.rpartition("/")[2] for key in desk.keys("blobs/")} <= named
