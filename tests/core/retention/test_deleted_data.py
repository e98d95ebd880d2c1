"""The sweep for a task whose data was deleted: memories of older versions, snapshots of
failed jobs.
"""

from typing import Any

import pytest

from core.database.tables import Alias, Edit, Model, Task, Version, VersionPart
from core.ids import new_id
from core.scheduling import claim as claims


def learn_with_buffer(desk: Any, model: str, buffer: str, gate: float = 0.0) -> None:
    """Learn the model's next version, with a memory."""
    desk.submit(model, gate={"min_new_task": gate})
    number = len(desk.all(Task, model_id=model))
    parts = {
        "head": f"head {buffer}",
        "buffer": buffer,
        "exemplars": f"too: {buffer}",
        "own": f"own {buffer}",
    }
    desk.publish(parts, [("new", number, 1, 2)])


def delete_task_data(desk: Any, model: str, number: int) -> None:
    with desk.db.write() as session:
        task = session.query(Task).filter_by(model_id=model, number=number).one()
        task.data_deleted_at = task.train_deleted_at = task.held_out_deleted_at = desk.db.now(
            session
        )


def list_versions_with_memory(desk: Any, model: str) -> list[int]:
    """Return the versions that still have their memory; rows and store must agree."""
    found = []
    for version in desk.all(Version, model_id=model):
        parts = desk.all(VersionPart, version_id=version.id)
        for part in parts:
            assert desk.blobs.has(part.sha256) is (part.deleted_at is None)
            assert part.deleted_at is None or part.type in ("buffer", "exemplars")
        if any(part.type == "buffer" and part.deleted_at is None for part in parts):
            found.append(version.number)
    return found


def test_older_memories_stay_until_the_next_version_is_there(desk: Any) -> None:
    model = desk.model()
    learn_with_buffer(desk, model, "1")
    learn_with_buffer(desk, model, "1 2")
    delete_task_data(desk, model, 1)
    desk.remove_unwanted_runs()
    assert list_versions_with_memory(desk, model) == [1, 2]
    learn_with_buffer(desk, model, "2 3")
    desk.remove_unwanted_runs()
    assert list_versions_with_memory(desk, model) == [3]
    learn_with_buffer(desk, model, "2 3 4")
    desk.remove_unwanted_runs()
    assert list_versions_with_memory(desk, model) == [3, 4]


def test_versions_from_before_the_task_and_other_models_keep_their_memory(desk: Any) -> None:
    model, other = desk.model(), desk.model()
    learn_with_buffer(desk, other, "other")
    learn_with_buffer(desk, model, "1")
    learn_with_buffer(desk, model, "1 2")
    delete_task_data(desk, model, 2)
    learn_with_buffer(desk, model, "1 3")
    desk.remove_unwanted_runs()
    assert list_versions_with_memory(desk, model) == [1, 3]
    assert list_versions_with_memory(desk, other) == [1]


def test_the_memory_that_the_next_job_starts_from_stays(desk: Any) -> None:
    """A held version is not the line head; then production goes back to an old version, and forward
    again.
    """
    model = desk.model(on_held="continue")
    learn_with_buffer(desk, model, "1")
    delete_task_data(desk, model, 1)
    learn_with_buffer(desk, model, "2", gate=0.9)
    desk.remove_unwanted_runs()
    assert list_versions_with_memory(desk, model) == [1, 2]
    learn_with_buffer(desk, model, "3")
    desk.roll_back(model)
    desk.remove_unwanted_runs()
    assert list_versions_with_memory(desk, model) == [1, 2, 3]
    desk.submit(model)
    desk.claim()
    # Production and head go forward again; the job goes on from the first version.
    with desk.db.write() as session:
        session.get_one(Alias, (model, "production")).version = 3
        session.get_one(Model, model).head = 3
    desk.remove_unwanted_runs()
    assert list_versions_with_memory(desk, model) == [1, 2, 3]


def test_a_memory_that_a_later_version_shares_has_none_of_the_images(desk: Any) -> None:
    model = desk.model()
    learn_with_buffer(desk, model, "the same")
    delete_task_data(desk, model, 1)
    learn_with_buffer(desk, model, "the same")
    desk.remove_unwanted_runs()
    assert list_versions_with_memory(desk, model) == [1, 2]


def learn_with_packs(desk: Any, model: str, *tasks: int) -> None:
    """Learn the model's next version, whose memory has a pack of images of each of these tasks."""
    desk.submit(model)
    number = len(desk.all(Task, model_id=model))
    packs = {f"buffer.images.{task}": f"{model} {task}" for task in tasks}
    parts = {"head": f"head {number}", "buffer": f"rows {number}", **packs}
    desk.publish(parts, [("new", number, 1, 2)])


def test_packs_that_later_versions_share_stay_and_those_of_the_task_go(desk: Any) -> None:
    """Older versions give up all of their packs: what they still named would be looked at in every
    sweep.
    """
    model = desk.model()
    learn_with_packs(desk, model, 1)
    learn_with_packs(desk, model, 1, 2)
    packs = {part.name: part.sha256 for part in desk.all(VersionPart)}
    delete_task_data(desk, model, 1)
    learn_with_packs(desk, model, 2, 3)
    desk.remove_unwanted_runs()
    assert not desk.blobs.has(packs["buffer.images.1"]) and desk.blobs.has(packs["buffer.images.2"])
    kept = {
        version.number: {
            p.name for p in desk.all(VersionPart, version_id=version.id) if p.deleted_at is None
        }
        for version in desk.all(Version, model_id=model)
    }
    assert kept.pop(3) == {"head", "buffer", "buffer.images.2", "buffer.images.3"}
    assert kept == {0: set(), 1: {"head"}, 2: {"head"}}


@pytest.mark.parametrize("erased", [False, True])
def test_a_failed_job_keeps_no_snapshot_with_images_that_were_deleted_since(
    desk: Any, erased: bool
) -> None:
    model = desk.model()
    learn_with_buffer(desk, model, "1")
    job = desk.submit(model)
    claim = desk.claim()
    desk.register(claim, "images of task 1")
    claims.fail_claimed_job_or_trial(desk.db, claim, "code", "x")
    if erased:
        delete_task_data(desk, model, 1)
    desk.remove_unwanted_runs()
    assert bool(desk.keys("snapshots/")) is not erased
    assert (desk.job(job).snapshot is None) is erased


def add_edit_row(desk: Any, model: str, version: int, undo_until: float | None) -> None:
    """Add the row of an edit that made a version."""
    job = desk.submit(model)
    with desk.db.write() as session:
        session.add(
            Edit(
                id=new_id("edt"),
                model_id=model,
                number=1,
                job_id=job,
                operations=[],
                way="relearn",
                tasks=[1],
                parent=1,
                version=version,
                undo_until=undo_until,
                created_at=0.0,
            )
        )


@pytest.mark.parametrize(("undo_until", "kept"), [(None, False), (1e12, True)])
def test_a_failed_job_keeps_no_snapshot_with_images_that_an_edit_removed_since(
    desk: Any, undo_until: float | None, kept: bool
) -> None:
    model = desk.model()
    learn_with_buffer(desk, model, "1")
    job = desk.submit(model)
    claim = desk.claim()
    desk.register(claim, "images of task 1")
    claims.fail_claimed_job_or_trial(desk.db, claim, "code", "x")
    desk.remove_unwanted_runs()
    assert desk.keys("snapshots/")
    add_edit_row(desk, model, 2, undo_until)
    desk.remove_unwanted_runs()
    assert bool(desk.keys("snapshots/")) is kept
    assert (desk.job(job).snapshot is not None) is kept


def test_a_failed_edit_keeps_no_snapshot_since_it_is_not_retried(desk: Any) -> None:
    job, claim = desk.begin()
    desk.register(claim)
    desk.set(job, kind="edit")
    claims.fail_claimed_job_or_trial(desk.db, claim, "lost", "x")
    desk.remove_unwanted_runs()
    assert desk.keys("snapshots/") == [] and desk.job(job).snapshot is None
