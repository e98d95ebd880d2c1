"""Accepting batches and acting on jobs, on both databases."""

import threading
from typing import Any

import pytest
from sqlalchemy import event, func, select

from core.database.jobs import change_job_state, lock_job
from core.database.states import JobAction
from core.database.tables import AuditEntry, Job, Model, StoredJobEvent, Task, VersionTaskResult
from core.errors import NameTaken, NotFound
from core.ids import new_id
from core.jobs import jobs
from core.models import models
from core.requests.actor import Actor
from core.tasks import retries, tasks
from tests.core.batches import CATALOGUE
from tests.core.office import Office
from tests.core.rows import make_version_row


def test_a_batch_is_task_job_event_and_audit_row_at_once(office: Office, model: str) -> None:
    done = office.submission().submit_as_next_task()
    answer, replay = done.response, done.is_replay
    assert not replay
    with office.db.read() as session:
        task = session.get_one(Task, answer["task"]["id"])
        job = session.get_one(Job, answer["job"]["id"])
        assert task.archive_key is not None
        assert office.store.stat(task.archive_key) is not None
        assert (job.place, job.state, job.recipe["epochs"]) == (1, "queued", 10)
        assert session.scalars(
            select(StoredJobEvent.type)
            .where(StoredJobEvent.job_id == job.id)
            .order_by(StoredJobEvent.id)
        ).all() == [
            "state",
            "log",
        ]
        mine = (
            select(AuditEntry.action)
            .where(AuditEntry.owner_id == office.actor.owner_id)
            .order_by(AuditEntry.id)
        )
        actions = session.scalars(mine).all()
        assert list(actions) == ["model.create", "task.submit"]
    assert not (office.folder / "upload-0").exists()


def test_a_model_that_changes_while_the_archive_is_stored_counts_as_it_is_then(
    office: Office, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_file = office.store.put_file

    def change_meanwhile(*given: Any, **options: Any) -> Any:
        with office.db.write() as session:
            session.get_one(Model, model).recipe = {"epochs": 7}
        return put_file(*given, **options)

    monkeypatch.setattr(office.store, "put_file", change_meanwhile)
    answer = office.submit()
    with office.db.read() as session:
        assert session.get_one(Job, answer["job"]["id"]).recipe["epochs"] == 7


@pytest.mark.both_databases
def test_a_submit_sends_few_statements(office: Office, model: str) -> None:
    office.submit(1)
    sent: list[str] = []
    event.listen(office.db.engine, "before_cursor_execute", lambda *given: sent.append(given[2]))
    office.submit(2, max_open_jobs=5)
    statements = [one for one in sent if not one.startswith("BEGIN")]
    # PostgreSQL also locks the owner's events.
    most = {"sqlite": 13, "postgresql": 14}
    assert len(statements) <= most[office.db.dialect], statements


@pytest.mark.both_databases
def test_tasks_submitted_at_once_are_numbered_without_gaps(office: Office, model: str) -> None:
    numbers: list[int] = []

    def submit_task(number: int) -> None:
        answer = office.submit(number)
        numbers.append(answer["task"]["number"])

    threads = [threading.Thread(target=submit_task, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 9))
    with office.db.read() as session:
        places = session.scalars(
            select(Job.place).where(Job.model_id == model).order_by(Job.place)
        ).all()
        assert list(places) == list(range(1, 9))


@pytest.mark.both_databases
def test_names_created_at_once_have_one_winner(office: Office) -> None:
    won: list[str] = []
    lost: list[str] = []

    def create_same_model() -> None:
        try:
            won.append(office.create("same")["id"])
        except NameTaken as error:
            lost.append(error.code)

    threads = [threading.Thread(target=create_same_model) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 4)


def test_another_owner_cannot_submit_read_or_cancel(office: Office, model: str) -> None:
    answer = office.submit()
    stranger = Actor(new_id("own"), None, "write")
    with pytest.raises(NotFound):
        office.submit(1, model, actor=stranger)
    with pytest.raises(NotFound):
        tasks.read_task(office.db, stranger, model, 1)
    with pytest.raises(NotFound):
        jobs.apply_job_action(office.db, stranger, answer["job"]["id"], JobAction.CANCEL)
    with office.db.read() as session:
        assert (
            session.scalar(select(func.count()).select_from(Task).where(Task.model_id == model))
            == 1
        )
    assert len(list(office.store.list("archives/"))) == 1


def test_a_cancelled_job_keeps_its_archive_and_can_be_retried(office: Office, model: str) -> None:
    answer = office.submit()
    assert (
        jobs.apply_job_action(office.db, office.actor, answer["job"]["id"], JobAction.CANCEL)[
            "state"
        ]
        == "cancelled"
    )
    assert tasks.read_task(office.db, office.actor, model, 1)["standing"] == "cancelled"
    assert len(list(office.store.list("archives/"))) == 1
    again, fresh = retries.retry_job(office.db, CATALOGUE, office.actor, answer["job"]["id"], None)
    assert fresh and (again["id"], again["state"]) == (answer["job"]["id"], "queued")
    assert tasks.read_task(office.db, office.actor, model, 1)["standing"] == "queued"


def test_an_administrator_finds_a_model_of_any_owner_by_name(office: Office, model: str) -> None:
    admin = Actor(new_id("own"), None, "admin")
    assert models.read_model(office.db, CATALOGUE, admin, model)["id"] == model
    assert models.read_model(office.db, CATALOGUE, office.actor, "birds")["id"] == model


def test_a_batch_with_another_method_is_warned_about(office: Office, model: str) -> None:
    er = CATALOGUE["methods"]["er"]
    catalogue = {**CATALOGUE, "methods": {"er": {**er, "takes": ["buffer"]}, "si": er}}
    office.submit(catalogue=catalogue)
    models.change_model(office.db, catalogue, office.actor, model, {"recipe": {"method": "si"}})
    answer = office.submit(1, catalogue=catalogue)
    assert any("from er to si" in w for w in answer["task"]["warnings"])


def test_a_running_job_starts_again_without_a_task_whose_data_is_deleted(
    office: Office, model: str
) -> None:
    first, second = (office.submit(n)["job"]["id"] for n in range(2))
    with office.db.write() as session:
        for job_id, actions in (
            (first, (JobAction.VALIDATE, JobAction.START, JobAction.PUBLISH)),
            (second, (JobAction.VALIDATE, JobAction.START)),
        ):
            row = lock_job(session, job_id)
            assert row is not None
            for action in actions:
                change_job_state(session, row, action, 1.0)
            row.fence = 1 if job_id == second else None
    tasks.delete_task_data(office.db, office.store, office.blobs, office.actor, model, 1)
    with office.db.read() as session:
        job = session.get_one(Job, second)
        assert (job.state, job.fence, job.strikes) == ("queued", None, 0)
        events = session.scalars(
            select(StoredJobEvent)
            .where(StoredJobEvent.job_id == second)
            .order_by(StoredJobEvent.id)
        ).all()
        assert events[-1].data == {"state": "queued", "reason": "the data of task 1 was deleted"}


def test_a_job_remembers_the_gate_it_was_submitted_under(office: Office, model: str) -> None:
    models.change_model(office.db, CATALOGUE, office.actor, model, {"gate": {"min_acc": 0.5}})
    answer = office.submit()
    models.change_model(office.db, CATALOGUE, office.actor, model, {"gate": {"min_acc": 0.9}})
    with office.db.read() as session:
        gate = session.get_one(Job, answer["job"]["id"]).gate
    assert gate is not None
    assert gate["min_acc"] == 0.5


def test_after_a_deletion_the_newest_version_keeps_its_figure_and_later_ones_have_none(
    office: Office, model: str
) -> None:
    ids = [office.submit(n)["job"]["id"] for n in range(2)]

    def publish_cells(number: int, cells: dict[int, tuple[int, int]]) -> None:
        with office.db.write() as session:
            job = lock_job(session, ids[number - 1])
            assert job is not None
            for action in (JobAction.VALIDATE, JobAction.START, JobAction.PUBLISH):
                change_job_state(session, job, action, 1.0)
            job.version = number
            of = {"parent": number - 1, "task_number": number, "job_id": job.id}
            session.add(make_version_row(new_id("ver"), model, number, **of))
            for task, (correct, total) in cells.items():
                session.add(
                    VersionTaskResult(
                        model_id=model,
                        version=number,
                        task=task,
                        correct=correct,
                        total=total,
                        per_class={},
                    )
                )

    publish_cells(1, {1: (8, 10)})
    tasks.delete_task_data(office.db, office.store, office.blobs, office.actor, model, 1)
    shown = tasks.read_task(office.db, office.actor, model, 1)
    assert (shown["accuracy_when_learned"], shown["accuracy_now"]) == (0.8, 0.8)
    publish_cells(2, {2: (9, 10)})
    shown = tasks.read_task(office.db, office.actor, model, 1)
    assert (shown["accuracy_when_learned"], shown["accuracy_now"]) == (0.8, None)
