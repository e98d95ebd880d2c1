"""A batch whose content a task of its model has: which standings answer it, which learn it, and
races.
"""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from core.database.session import Database
from core.database.states import JobState
from core.database.tables import Job, Task
from core.lineage.standing import TaskStanding
from core.requests.idempotency import IdempotentRequestIdentity
from core.tasks import tasks
from tests.core.at_once import run_at_once
from tests.core.batches import make_batch
from tests.core.office import Office
from tests.core.rows import make_version_row

pytestmark = pytest.mark.usefixtures("model")
CONTENT = "c" * 64


def send_batch(office: Office, number: int = 0, *, key: str | None = None, **options: Any) -> Any:
    """Send a batch of the content CONTENT from archive NUMBER, and return the result."""
    given = make_batch(office.folder, number, content=options.pop("content", CONTENT), **options)
    repeat = IdempotentRequestIdentity("POST", key, "f") if key is not None else None
    return office.submission(given, repeat=repeat).submit_as_next_task()


def settle_task(
    office: Office,
    standing: str | None,
    state: JobState,
    *,
    task: int = 1,
    version: int | None = None,
) -> None:
    """Set the standing of a task, and the state in which its newest job ended."""
    with office.db.write() as session:
        session.execute(update(Task).where(Task.number == task).values(standing=standing))
        job = session.scalars(
            select(Job).where(Job.task_number == task).order_by(Job.place.desc())
        ).first()
        assert job is not None
        job.state, job.version = str(state), version


def list_task_numbers(office: Office) -> list[int]:
    with office.db.read() as session:
        return list(session.scalars(select(Task.number).order_by(Task.number)))


ANSWERED = {
    "queued": (None, JobState.QUEUED, None),
    "running": (None, JobState.RUNNING, None),
    "learned": ("learned", JobState.SUCCEEDED, 3),
    "held": ("held", JobState.SUCCEEDED, 3),
}


@pytest.mark.parametrize("standing", ANSWERED)
def test_a_batch_that_is_there_is_answered_with_its_task(standing: str, office: Office) -> None:
    first = send_batch(office)
    stored, state, version = ANSWERED[standing]
    settle_task(office, stored, state, version=version)
    found = send_batch(office, 1)
    assert (found.status, found.is_new) == (200, False)
    assert found.response["repeats"] == {"task": 1, "standing": standing, "version": version}
    assert found.response["task"]["id"] == first.response["task"]["id"]
    assert found.headers == {"Location": f"/v1/jobs/{first.job}"}
    assert list_task_numbers(office) == [1]
    assert len(list(office.store.list("archives/"))) == 1


LEARNED = {
    "rolled_back": JobState.SUCCEEDED,
    "skipped": JobState.SUCCEEDED,
    "discarded": JobState.SUCCEEDED,
    "rejected": JobState.REJECTED,
    "failed": JobState.FAILED,
    "cancelled": JobState.CANCELLED,
}


@pytest.mark.parametrize("standing", LEARNED)
def test_a_batch_is_learned_where_nothing_is_left_of_its_first_task(
    standing: str, office: Office
) -> None:
    send_batch(office)
    settle_task(office, standing, LEARNED[standing])
    found = send_batch(office, 1)
    assert found.status == 202 and "repeats" not in found.response
    (warning,) = [text for text in found.response["task"]["warnings"] if "repeats" in text]
    assert f"which is {standing.replace('_', ' ')}" in warning
    assert list_task_numbers(office) == [1, 2]
    assert send_batch(office, 2).response["repeats"]["task"] == 2


def test_every_standing_is_answered_or_learned() -> None:
    assert {*ANSWERED, *LEARNED} == {str(one) for one in TaskStanding}


def test_a_batch_whose_data_was_deleted_is_learned_and_its_digest_is_gone(office: Office) -> None:
    send_batch(office)
    settle_task(office, "learned", JobState.SUCCEEDED)
    tasks.delete_task_data(office.db, office.store, office.blobs, office.actor, "birds", 1)
    with office.db.read() as session:
        assert session.execute(select(Task.content_sha256, Task.content_turn)).one() == (None, None)
    assert send_batch(office).status == 202


def test_a_batch_that_is_learned_once_more_has_a_warning_of_the_cost(office: Office) -> None:
    send_batch(office)
    found = send_batch(office, 1, again=True)
    (warning,) = [text for text in found.response["task"]["warnings"] if "once more" in text]
    assert found.status == 202 and "9 bytes" in warning and "twice" in warning
    with office.db.read() as session:
        rows = session.execute(select(Task.content_sha256, Task.content_turn).order_by(Task.number))
        assert [tuple(row) for row in rows] == [(CONTENT, 0), (CONTENT, 1)]


def test_an_older_task_is_known_by_its_archive_where_it_was_read_alike(office: Office) -> None:
    send_batch(office, content=None)
    assert send_batch(office, content=CONTENT).response["repeats"]["task"] == 1
    other = make_batch(office.folder, 0, content=CONTENT)
    read = replace(other.directory, reading={"options": {"layout": "folders"}})
    assert office.submission(replace(other, directory=read)).submit_as_next_task().status == 202


def test_another_model_or_content_learns(office: Office) -> None:
    send_batch(office)
    assert send_batch(office, 1, content="d" * 64).status == 202
    office.create("fish")
    given = make_batch(office.folder, 0, content=CONTENT)
    assert office.submission(given, "fish").submit_as_next_task().status == 202


def hold_newest_version(office: Office, status: str = "held") -> None:
    """Let the gate hold a version of the newest job, and keep its images."""
    settle_task(office, "held", JobState.SUCCEEDED, version=1)
    with office.db.write() as session:
        job = session.scalars(select(Job)).one()
        given: dict[str, Any] = {"task_number": 1, "job_id": job.id, "status": status}
        session.add(make_version_row("ver_1", job.model_id, **given))


def test_a_held_batch_is_retried_with_another_recipe_and_only_then(office: Office) -> None:
    first = send_batch(office, recipe={"epochs": 3})
    hold_newest_version(office)
    for recipe in (None, {"epochs": 3}):
        assert send_batch(office, 1, recipe=recipe).response["repeats"]["standing"] == "held"
    found = send_batch(office, 2, recipe={"epochs": 4})
    assert (found.status, found.is_new, found.response["repeats"]["standing"]) == (
        202,
        True,
        "held",
    )
    assert found.response["job"]["retry_of"] == first.job and found.response["task"]["number"] == 1
    assert found.response["job"]["recipe"]["epochs"] == 4
    again = send_batch(office, 3, recipe={"epochs": 4})
    assert (again.job, again.response["repeats"]["standing"]) == (found.job, "queued")
    assert list_task_numbers(office) == [1]


@pytest.mark.parametrize(("status", "answered"), [("held", True), ("published", False)])
def test_a_skipped_batch_is_answered_where_its_version_is_held(
    status: str, answered: bool, office: Office
) -> None:
    first = send_batch(office)
    hold_newest_version(office, status)
    settle_task(office, "skipped", JobState.SUCCEEDED, version=1)
    found = send_batch(office, 1)
    assert (found.job == first.job, found.status == 200) == (answered, answered)
    assert list_task_numbers(office) == ([1] if answered else [1, 2])


def test_a_held_batch_whose_images_are_gone_is_learned_with_another_recipe(office: Office) -> None:
    send_batch(office)
    hold_newest_version(office)
    with office.db.write() as session:
        session.execute(update(Task).values(archive_key=None, train_sha256=None))
    assert send_batch(office, 1).status == 200
    assert send_batch(office, 2, recipe={"epochs": 4}).response["task"]["number"] == 2


def test_a_check_says_what_a_submit_would_answer(office: Office) -> None:
    given = make_batch(office.folder, 0, content=CONTENT)
    assert "repeats" not in office.submission(given).preview_submission()
    office.submission(given).submit_as_next_task()
    given = make_batch(office.folder, 1, content=CONTENT)
    assert office.submission(given).preview_submission()["repeats"] == {
        "task": 1,
        "standing": "queued",
        "version": None,
    }
    report = office.submission(replace(given, again=True)).preview_submission()
    assert "repeats" not in report and any("once more" in text for text in report["warnings"])


def test_an_idempotency_key_keeps_the_answer_that_it_had(office: Office) -> None:
    first = send_batch(office, key="k")
    second = send_batch(office, 1, key="other")
    assert second.status == 200
    settle_task(office, "learned", JobState.SUCCEEDED, version=1)
    for key, done, status in (("k", first, 202), ("other", second, 200)):
        found = send_batch(office, 2, key=key)
        assert (found.is_replay, found.status, found.response) == (True, status, done.response)


@pytest.mark.both_databases
@pytest.mark.parametrize("before", ["nothing", "a failed task"])
def test_of_batches_that_come_at_once_one_is_learned(before: str, office: Office) -> None:
    if before == "a failed task":
        send_batch(office, 9)
        settle_task(office, "failed", JobState.FAILED)
    found = run_at_once(lambda number: send_batch(office, number), range(4))
    assert sorted(one.status for one in found) == [200, 200, 200, 202]
    assert len({one.job for one in found}) == 1
    number = found[0].response["task"]["number"]
    assert list_task_numbers(office) == ([1, 2] if before == "a failed task" else [1])
    assert {one.response["task"]["number"] for one in found} == {number}
    kept = [info.key for info in office.store.list("archives/")]
    assert len(kept) == len(list_task_numbers(office))


@pytest.mark.both_databases
def test_a_held_batch_is_retried_once_by_requests_at_once(office: Office) -> None:
    send_batch(office)
    hold_newest_version(office)
    found = run_at_once(
        lambda number: send_batch(office, number, recipe={"epochs": 4}), range(1, 5)
    )
    assert sorted(one.status for one in found) == [200, 200, 200, 202]
    assert len({one.job for one in found}) == 1


@pytest.mark.both_databases
def test_two_tasks_cannot_be_the_same_turn_of_one_content(
    office: Office, database: Database
) -> None:
    send_batch(office)
    send_batch(office, 1, content="d" * 64)
    with pytest.raises(IntegrityError), database.write() as session:
        session.execute(update(Task).where(Task.number == 2).values(content_sha256=CONTENT))


def test_an_upload_that_is_known_leaves_nothing_in_the_store(office: Office) -> None:
    send_batch(office)
    before = {info.key for info in office.store.list("")}
    sent = make_batch(office.folder, 1, content=CONTENT)
    office.submission(sent).submit_as_next_task()
    assert {info.key for info in office.store.list("")} == before
    assert sent.path.exists()
