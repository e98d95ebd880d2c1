"""Rebases that are asked for at the same moment, on both databases: one new model is made, and one
takes the name.
"""

from pathlib import Path

import pytest
from sqlalchemy import select

from core.contract.manifest import Manifest
from core.database.tables import Alias, Model, Task, Version, VersionTaskResult
from core.errors import NameTaken, NotFound, WrongState
from core.ids import new_id
from core.rebase import rebase, rebase_finish
from tests.core.at_once import run_at_once
from tests.core.office import Office
from tests.core.rows import make_task_row, make_version_row

pytestmark = pytest.mark.both_databases
SHA256 = "5" * 64


def publish_first_batch(office: Office, model: str) -> None:
    """Give a model a version in production that was taught one batch,
    and measured by counts alone.
    """
    with office.db.write() as session:
        row = session.scalars(select(Model).where(Model.name == model)).one()
        stored = office.blobs.put_file(write_images(office.folder))[0]
        kept = {"train_sha256": stored, "held_out_sha256": stored, "n_train": 1, "n_held_out": 1}
        known = {"sha256": SHA256, "classes": {"a": 1, "b": 1}, "standing": "learned"}
        session.add(make_task_row(new_id("tsk"), row.id, row.next_task, **kept, **known))
        parent = session.scalars(select(Version).where(Version.model_id == row.id)).first()
        assert parent is not None
        document = {
            **parent.manifest.to_json(),
            "version": 1,
            "tasks": [row.next_task],
            "classes": ["a", "b"],
        }
        session.add(make_version_row(new_id("ver"), row.id, manifest=Manifest.from_json(document)))
        cell = {"correct": 1, "total": 1, "per_class": {"a": [1, 1]}}
        session.add(VersionTaskResult(model_id=row.id, version=1, task=row.next_task, **cell))
        session.get_one(Alias, (row.id, "production")).version = row.head = 1
        row.next_task, row.next_version = row.next_task + 1, 2


def write_images(folder: Path) -> Path:
    path = folder / "images"
    path.write_bytes(b"images")
    return path


def try_to_begin_rebase(office: Office) -> str:
    base = rebase.RebaseRequest({"model": "other", "version": 0})
    try:
        found = rebase.begin_rebase(office.resources, office.actor, "birds", base)[0]
    except (WrongState, NameTaken) as error:
        return error.code
    return found["new"]["name"]


def try_to_finish_rebase(office: Office, model: str) -> str:
    try:
        decision = rebase_finish.RebaseDecision(missing="allow")
        rebase_finish.finish_rebase(office.db, office.blobs, office.actor, model, decision)
    except (WrongState, NotFound) as error:
        return error.code
    return "moved"


@pytest.fixture
def birds(office: Office) -> str:
    """The id of `birds`, which has learned a batch; `other` has a base to move to."""
    office.create("other")
    made = office.create("birds", recipe={"method": {"name": "er"}})
    publish_first_batch(office, "birds")
    return str(made["id"])


def test_of_requests_at_once_one_begins(office: Office, birds: str) -> None:
    assert sorted(run_at_once(lambda _: try_to_begin_rebase(office), range(3))) == [
        "birds-rebased",
        "wrong-state",
        "wrong-state",
    ]
    with office.db.read() as session:
        new = session.scalars(select(Model).where(Model.rebased_from == birds)).one()
        tasks = session.scalars(select(Task).where(Task.model_id == new.id)).all()
    assert [task.sha256 for task in tasks] == [SHA256], "it learns from the same images"


def test_of_requests_at_once_one_moves_production(office: Office, birds: str) -> None:
    try_to_begin_rebase(office)
    publish_first_batch(office, "birds-rebased")
    moved = run_at_once(lambda _: try_to_finish_rebase(office, "birds-rebased"), range(3))
    assert sorted(moved)[0] == "moved" and moved.count("moved") == 1, moved
    with office.db.read() as session:
        names = {
            one.id: one.name for one in session.scalars(select(Model).where(Model.name != "other"))
        }
    assert names.pop(birds) == "birds-before-rebase" and list(names.values()) == ["birds"]
