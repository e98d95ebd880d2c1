"""Accepting batches and acting on jobs, on both databases."""

import threading
from pathlib import Path

import pytest
from sqlalchemy import func, select

from core.db.jobs import locked, move
from core.db.session import Database
from core.db.states import Action
from core.db.tables import Audit, Event, Job, Result, Task, Version
from core.errors import NameTaken, NotFound
from core.ids import new_id
from core.protocol.manifest import Manifest
from core.requests import jobs, models, retries, tasks
from core.requests.actor import Actor
from core.requests.submission import Submission
from core.store import Blobs
from core.store.folder import FolderStore
from tests.core.requests.batches import CATALOGUE, batch

MANIFEST = Manifest.from_json(
    {"scenario": "class", "architecture": {"name": "mlp"}, "image": {"size": 8, "channels": 3}}
)


def test_a_batch_is_task_job_event_and_audit_row_at_once(
    database: Database, store: FolderStore, actor: Actor, model: str, tmp_path: Path
) -> None:
    answer, replay = Submission(database, store, CATALOGUE, actor, model, batch(tmp_path), None).submit()
    assert not replay
    with database.read() as session:
        task = session.get_one(Task, answer["task"]["id"])
        job = session.get_one(Job, answer["job"]["id"])
        assert task.archive_key is not None
        assert store.stat(task.archive_key) is not None
        assert (job.place, job.state, job.recipe["epochs"]) == (1, "queued", 10)
        assert session.scalars(select(Event.type).where(Event.job_id == job.id)).all() == ["state", "log"]
        actions = session.scalars(select(Audit.action).where(Audit.owner_id == actor.owner_id)).all()
        assert list(actions) == ["model.create", "task.submit"]
    assert not batch_path(tmp_path).exists()


def batch_path(folder: Path) -> Path:
    return folder / "upload-0"


@pytest.mark.both_databases
def test_tasks_submitted_at_once_are_numbered_without_gaps(
    database: Database, store: FolderStore, actor: Actor, model: str, tmp_path: Path
) -> None:
    numbers: list[int] = []

    def submit(number: int) -> None:
        answer, _ = Submission(
            database, store, CATALOGUE, actor, model, batch(tmp_path, number), None
        ).submit()
        numbers.append(answer["task"]["number"])

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 9))
    with database.read() as session:
        places = session.scalars(select(Job.place).where(Job.model_id == model).order_by(Job.place)).all()
        assert list(places) == list(range(1, 9))


@pytest.mark.both_databases
def test_names_created_at_once_have_one_winner(
    database: Database, store: FolderStore, actor: Actor, tmp_path: Path
) -> None:
    won: list[str] = []
    lost: list[str] = []

    def create() -> None:
        blobs = Blobs(store, tmp_path / "cache")
        try:
            given = {"name": "same", "scenario": "class", "architecture": "small-cnn"}
            won.append(models.create(database, blobs, CATALOGUE, actor, given)[0]["id"])
        except NameTaken as error:
            lost.append(error.code)

    threads = [threading.Thread(target=create) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 4)


def test_another_owner_cannot_submit_read_or_cancel(
    database: Database, store: FolderStore, actor: Actor, model: str, tmp_path: Path
) -> None:
    answer, _ = Submission(database, store, CATALOGUE, actor, model, batch(tmp_path), None).submit()
    stranger = Actor(new_id("own"), None, "write")
    with pytest.raises(NotFound):
        Submission(database, store, CATALOGUE, stranger, model, batch(tmp_path, 1), None).submit()
    with pytest.raises(NotFound):
        tasks.read(database, stranger, model, 1)
    with pytest.raises(NotFound):
        jobs.act(database, stranger, answer["job"]["id"], Action.CANCEL)
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Task).where(Task.model_id == model)) == 1
    assert len(list(store.list("archives/"))) == 1


def test_a_cancelled_job_keeps_its_archive_and_can_be_retried(
    database: Database, store: FolderStore, actor: Actor, model: str, tmp_path: Path
) -> None:
    answer, _ = Submission(database, store, CATALOGUE, actor, model, batch(tmp_path), None).submit()
    assert jobs.act(database, actor, answer["job"]["id"], Action.CANCEL)["state"] == "cancelled"
    assert tasks.read(database, actor, model, 1)["standing"] == "cancelled"
    assert len(list(store.list("archives/"))) == 1
    again, fresh = retries.retry(database, CATALOGUE, actor, answer["job"]["id"], None)
    assert fresh and (again["id"], again["state"]) == (answer["job"]["id"], "queued")
    assert tasks.read(database, actor, model, 1)["standing"] == "queued"


def test_an_administrator_finds_a_model_of_any_owner_by_name(
    database: Database, actor: Actor, model: str
) -> None:
    admin = Actor(new_id("own"), None, "admin")
    assert models.read(database, CATALOGUE, admin, model)["id"] == model
    assert models.read(database, CATALOGUE, actor, "birds")["id"] == model


def test_a_batch_with_another_method_is_warned_about(
    database: Database, store: FolderStore, actor: Actor, model: str, tmp_path: Path
) -> None:
    er = CATALOGUE["methods"]["er"]
    catalogue = {**CATALOGUE, "methods": {"er": {**er, "takes": ["buffer"]}, "si": er}}
    Submission(database, store, catalogue, actor, model, batch(tmp_path), None).submit()
    models.change(database, catalogue, actor, model, {"recipe": {"method": "si"}})
    answer, _ = Submission(database, store, catalogue, actor, model, batch(tmp_path, 1), None).submit()
    assert any("from er to si" in w for w in answer["task"]["warnings"])


def test_a_running_job_starts_again_without_a_task_whose_data_is_deleted(
    database: Database, store: FolderStore, actor: Actor, model: str, tmp_path: Path
) -> None:
    first, second = (
        Submission(database, store, CATALOGUE, actor, model, batch(tmp_path, n), None).submit()[0]["job"][
            "id"
        ]
        for n in range(2)
    )
    with database.write() as session:
        for job_id, actions in (
            (first, (Action.VALIDATE, Action.START, Action.PUBLISH)),
            (second, (Action.VALIDATE, Action.START)),
        ):
            row = locked(session, job_id)
            assert row is not None
            for action in actions:
                move(session, row, action, 1.0)
            row.fence = 1 if job_id == second else None
    tasks.delete_data(database, store, Blobs(store, tmp_path / "cache"), actor, model, 1)
    with database.read() as session:
        job = session.get_one(Job, second)
        assert (job.state, job.fence, job.strikes) == ("queued", None, 0)
        events = session.scalars(select(Event).where(Event.job_id == second).order_by(Event.id)).all()
        assert events[-1].data == {"state": "queued", "reason": "the data of task 1 was deleted"}


def test_a_job_remembers_the_gate_it_was_submitted_under(
    database: Database, store: FolderStore, actor: Actor, model: str, tmp_path: Path
) -> None:
    models.change(database, CATALOGUE, actor, model, {"gate": {"min_acc": 0.5}})
    answer, _ = Submission(database, store, CATALOGUE, actor, model, batch(tmp_path), None).submit()
    models.change(database, CATALOGUE, actor, model, {"gate": {"min_acc": 0.9}})
    with database.read() as session:
        gate = session.get_one(Job, answer["job"]["id"]).gate
    assert gate is not None
    assert gate["min_acc"] == 0.5


def test_after_a_deletion_the_newest_version_keeps_its_figure_and_later_ones_have_none(
    database: Database, store: FolderStore, actor: Actor, model: str, tmp_path: Path
) -> None:
    ids = [
        Submission(database, store, CATALOGUE, actor, model, batch(tmp_path, n), None).submit()[0]["job"][
            "id"
        ]
        for n in range(2)
    ]

    def publish(number: int, cells: dict[int, tuple[int, int]]) -> None:
        with database.write() as session:
            job = locked(session, ids[number - 1])
            assert job is not None
            for action in (Action.VALIDATE, Action.START, Action.PUBLISH):
                move(session, job, action, 1.0)
            job.version = number
            row = {"status": "published", "gate": {}, "manifest": MANIFEST, "bytes": 0, "bytes_new": 0}
            session.add(
                Version(
                    id=new_id("ver"), model_id=model, number=number, parent=number - 1, task_number=number,
                    job_id=job.id, created_at=1.0, **row,
                )
            )  # fmt: skip
            for task, (correct, total) in cells.items():
                session.add(
                    Result(
                        model_id=model, version=number, task=task, correct=correct, total=total, per_class={}
                    )
                )

    publish(1, {1: (8, 10)})
    tasks.delete_data(database, store, Blobs(store, tmp_path / "cache"), actor, model, 1)
    shown = tasks.read(database, actor, model, 1)
    assert (shown["accuracy_when_learned"], shown["accuracy_now"]) == (0.8, 0.8)
    publish(2, {2: (9, 10)})
    shown = tasks.read(database, actor, model, 1)
    assert (shown["accuracy_when_learned"], shown["accuracy_now"]) == (0.8, None)
