"""Answers of an update: one blob, from which those on a task go with its images."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from core.contract.jobs.job_spec import FileByteRange
from core.database.tables import Task, VersionPart, VersionTaskResult
from core.execution.prepare import fetch_job_inputs_and_write_spec
from core.ingest.stored_predictions import (
    TaskPredictionsPlaceInBlob,
    decrypt_predictions,
    read_encrypted_predictions,
    read_predictions_written_by_job,
)
from core.learning.evaluation import stored_predictions
from core.learning.problems.class_predictions import make_class_predictions
from core.publishing import publish as publishing
from core.publishing import version_rows
from core.publishing.publish import publish_or_hold_job_result
from core.retention.retained_predictions import clear_prediction_digests_and_keys
from core.storage.folder import FolderStore
from tests.core.desk import Desk

IMAGES = 6


class RemoteStore(FolderStore):
    """Counts requests, and has no local files, as S3."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.requests: Counter[str] = Counter()

    def put_file(self, key: str, path: Path, *, move: bool = False) -> str:
        self.requests["put"] += 1
        return super().put_file(key, path, move=move)

    def stat(self, key: str) -> Any:
        self.requests["stat"] += 1
        return super().stat(key)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Any:
        self.requests["read"] += 1
        return super().read(key, offset, length)

    def get_local_path(self, key: str) -> Path | None:
        return None


def make_predictions(version: int, task: int) -> Any:
    scores = torch.randn(
        IMAGES, 2 * version, generator=torch.Generator().manual_seed(100 * version + task)
    )
    return make_class_predictions(scores, torch.zeros(IMAGES, dtype=torch.int64), 1.0)


def publish_next_version(desk: Desk, model: str) -> dict[int, bytes]:
    """Publish the next version with answers on all tasks.
    Return what its job wrote, by task.
    """
    _, claim = desk.begin(model)
    number = claim.task_number or 0
    tasks = range(1, number + 1)
    kept = {("new", task): make_predictions(number, task) for task in tasks}
    cells = [("new", task, IMAGES, IMAGES) for task in tasks]
    result = desk.result({"head": f"h{number}"}, cells, classes=[f"{n}" for n in range(2 * number)])
    files = stored_predictions.write_prediction_file(result, kept)
    document = json.loads((result / "result.json").read_text())
    listed = [file.to_json() for file in files]
    (result / "result.json").write_text(json.dumps({**document, "answers": listed}))
    left = {
        task: data for (_, task), data in read_predictions_written_by_job(result, files).items()
    }
    publish_or_hold_job_result(
        desk.db, desk.store, claim, result, desk.settings.make_folder("cache")
    )
    return left


def read_cells(desk: Desk, model: str, version: int) -> dict[int, VersionTaskResult]:
    return {
        cell.task: cell for cell in desk.all(VersionTaskResult, model_id=model, version=version)
    }


def read_answer_keys(desk: Desk, model: str) -> dict[int, str | None]:
    return {task.number: task.answers_key for task in desk.all(Task, model_id=model)}


@pytest.mark.both_databases
def test_all_answers_of_a_version_are_one_blob_from_which_those_on_a_deleted_task_cannot_be_read(
    desk: Desk,
) -> None:
    model = desk.model()
    left = [publish_next_version(desk, model) for _ in range(3)][-1]
    cells, keys = read_cells(desk, model, 3), read_answer_keys(desk, model)
    (digest,) = {cell.answers for cell in cells.values()}
    assert digest is not None and len(set(keys.values())) == 3
    blob = desk.blobs.fetch_verified_file(digest)
    assert {
        task: decrypt_predictions(blob, TaskPredictionsPlaceInBlob(3, task, key))
        for task, key in keys.items()
    } == left
    assert not any(file in blob.read_bytes() for file in left.values())
    with desk.db.write() as session:
        assert clear_prediction_digests_and_keys(session, model, 1) == sorted(
            {read_cells(desk, model, n)[1].answers for n in (1, 2, 3)}
        )
    assert {task: key is None for task, key in read_answer_keys(desk, model).items()} == {
        1: True,
        2: False,
        3: False,
    }
    assert {task: cell.answers is None for task, cell in read_cells(desk, model, 3).items()} == {
        1: True,
        2: False,
        3: False,
    }
    with pytest.raises(ValueError, match="no answers of version 3 on task 1"):
        decrypt_predictions(blob, TaskPredictionsPlaceInBlob(3, 1, None))
    assert (
        read_encrypted_predictions(blob, TaskPredictionsPlaceInBlob(3, 2, keys[2]))[0].tolist()
        == make_predictions(3, 2).rows.tolist()
    )


def test_a_job_gets_the_answers_of_its_parent_also_from_blobs_of_older_releases(desk: Desk) -> None:
    model = desk.model()
    left = [publish_next_version(desk, model) for _ in range(2)][-1]
    path = desk.folder / "old"
    path.write_bytes(left[1])
    digest = desk.blobs.put_file(path)[0]
    with desk.db.write() as session:
        session.get_one(VersionTaskResult, (model, 2, 1)).answers = digest
    desk.submit(model)
    spec = json.loads(
        fetch_job_inputs_and_write_spec(
            desk.db, desk.store, desk.claim(), desk.settings, desk.folder / "job"
        ).read_text()
    )
    parts = {task["number"]: FileByteRange.from_json(task["answers"]) for task in spec["history"]}
    assert {
        task: part.path.read_bytes()[part.begin : part.end] for task, part in parts.items()
    } == left


def test_a_job_asks_its_parent_where_the_stored_answers_are_damaged(desk: Desk) -> None:
    model = desk.model()
    publish_next_version(desk, model)
    digest = read_cells(desk, model, 1)[1].answers
    assert digest is not None
    desk.store.put_bytes(desk.blobs.make_blob_key(digest), b"rot")
    desk.submit(model)
    spec = json.loads(
        fetch_job_inputs_and_write_spec(
            desk.db, desk.store, desk.claim(), desk.settings, desk.folder / "job"
        ).read_text()
    )
    assert spec["history"][0]["answers"] is None and spec["history"][0]["held_out"]


def test_of_a_model_that_keeps_counts_no_answers_are_left(desk: Desk) -> None:
    model = desk.model(held_out="counts")
    publish_next_version(desk, model)
    before = set(desk.keys("blobs/"))
    publish_next_version(desk, model)
    assert read_answer_keys(desk, model) == {1: None, 2: None}
    assert all(cell.answers is None for cell in desk.all(VersionTaskResult, model_id=model))
    left = set(desk.keys("blobs/")) - before
    named = {part.sha256 for part in desk.all(VersionPart)} | {
        digest for task in desk.all(Task) for digest in (task.train_sha256, task.traces_sha256)
    }
    assert {key.rpartition("/")[2] for key in left} <= named


def test_the_requests_to_the_store_do_not_grow_with_the_number_of_tasks(desk: Desk) -> None:
    store = RemoteStore(desk.store.root)
    desk.store = store
    model = desk.model()
    counts = []
    for _ in range(6):
        store.requests.clear()
        publish_next_version(desk, model)
        counts.append(dict(store.requests))
    assert counts[5] == counts[1], counts


def test_the_store_is_not_asked_while_rows_are_locked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RemoteStore(desk.store.root)
    desk.store = store
    model = desk.model()
    publish_next_version(desk, model)
    hold, add = version_rows.lock_claimed_job, publishing.stored_bytes.add_stored_bytes
    asked: list[int] = []

    def clear_requests_and_lock(session: Any, claim: Any) -> Any:
        store.requests.clear()
        return hold(session, claim)

    def count_requests_and_add(*args: Any) -> None:
        asked.append(sum(store.requests.values()))
        add(*args)

    monkeypatch.setattr(version_rows, "lock_claimed_job", clear_requests_and_lock)
    monkeypatch.setattr(publishing.stored_bytes, "add_stored_bytes", count_requests_and_add)
    publish_next_version(desk, model)
    assert asked == [0]
