"""Moving a job: state, revision, times, lease and event change together or not at all."""

import pytest
from sqlalchemy import select

from core.database.jobs import change_job_state, lock_job
from core.database.session import Database
from core.database.states import JobAction, JobState
from core.database.tables import Job, StoredJobEvent
from core.errors import WrongState


def list_state_events(database: Database) -> list[dict[str, object]]:
    with database.read() as session:
        query = (
            select(StoredJobEvent)
            .where(StoredJobEvent.type == "state", StoredJobEvent.at >= 10)
            .order_by(StoredJobEvent.id)
        )
        return [event.data for event in session.execute(query).scalars()]


def test_a_move_changes_state_revision_and_events(filled: Database) -> None:
    with filled.write() as session:
        job = lock_job(session, "job_1")
        assert job is not None
        assert (
            change_job_state(session, job, JobAction.PAUSE, 10.0, {"reason": "asked"})
            is JobState.PAUSED
        )
    with filled.read() as session:
        job = session.get_one(Job, "job_1")
        assert (job.state, job.revision) == ("paused", 2)
    assert list_state_events(filled) == [{"state": "paused", "reason": "asked"}]


def test_asking_for_what_is_writes_nothing(filled: Database) -> None:
    for _ in range(2):
        with filled.write() as session:
            job = lock_job(session, "job_1")
            assert job is not None
            change_job_state(session, job, JobAction.CANCEL, 10.0)
    with filled.read() as session:
        assert session.get_one(Job, "job_1").revision == 2
    assert len(list_state_events(filled)) == 1


def test_a_refused_move_changes_nothing(filled: Database) -> None:
    with pytest.raises(WrongState), filled.write() as session:
        job = lock_job(session, "job_1")
        assert job is not None
        change_job_state(session, job, JobAction.PUBLISH, 10.0)
    assert list_state_events(filled) == []


def test_a_job_that_ends_has_no_lease_and_an_end(filled: Database) -> None:
    with filled.write() as session:
        job = lock_job(session, "job_1")
        assert job is not None
        job.fence, job.worker, job.lease_until, job.rung_at = 3, "w", 99.0, 5.0
        change_job_state(session, job, JobAction.START, 10.0)
        assert (job.fence, job.finished_at) == (3, None)
        change_job_state(session, job, JobAction.FAIL, 11.0)
        assert (job.fence, job.worker, job.lease_until, job.finished_at) == (None, None, None, 11.0)
        change_job_state(session, job, JobAction.RETRY, 12.0)
        assert (job.finished_at, job.rung_at) == (None, None)


def test_an_unknown_job_is_none(filled: Database) -> None:
    with filled.write() as session:
        assert lock_job(session, "job_9") is None


def list_log_lines(database: Database) -> list[tuple[object, object]]:
    with database.read() as session:
        query = (
            select(StoredJobEvent)
            .where(StoredJobEvent.type == "log", StoredJobEvent.at >= 10)
            .order_by(StoredJobEvent.id)
        )
        return [
            (event.data["level"], event.data["message"])
            for event in session.execute(query).scalars()
        ]


def apply_job_actions(database: Database, *moves: tuple[JobAction, dict[str, object]]) -> None:
    for action, data in moves:
        with database.write() as session:
            job = lock_job(session, "job_1")
            assert job is not None
            change_job_state(session, job, action, 10.0, data)


def test_a_persons_wishes_are_lines_of_the_log(filled: Database) -> None:
    apply_job_actions(
        filled,
        (JobAction.PAUSE, {}),
        (JobAction.RESUME, {}),
        (JobAction.CANCEL, {"reason": "model deleted"}),
    )
    assert list_log_lines(filled) == [
        ("info", "Paused: the job keeps its place, and later jobs of the model wait."),
        ("info", "Resumed: the job waits for a worker."),
        ("info", "Cancelled: model deleted."),
    ]


def test_attempts_that_are_lost_say_why_and_how_often(filled: Database) -> None:
    lost = {"reason": "The worker w-1 stopped reporting.", "strikes": 2}
    ended = {
        "error": {"kind": "lost", "code": "job-lost", "detail": "3 attempts in a row were lost."}
    }
    apply_job_actions(
        filled,
        (JobAction.VALIDATE, {"attempt": 0}),
        (JobAction.START, {}),
        (JobAction.REQUEUE, lost),
        (JobAction.START, {"attempt": 0}),
        (JobAction.RELEASE, {}),
        (JobAction.START, {"attempt": 0}),
        (JobAction.FAIL, ended),
        (JobAction.RETRY, {}),
    )
    attempt = "Attempt 0 began; the images are decoded already."
    assert list_log_lines(filled) == [
        ("info", "Attempt 0 began; the archive is decoded first."),
        (
            "warning",
            "The attempt was lost: The worker w-1 stopped reporting. Another one follows."
            " 2 in a row without a new snapshot so far.",
        ),
        ("info", attempt),
        ("info", "The attempt stopped in order (the worker shuts down); another one follows."),
        ("info", attempt),
        ("error", "Failed: 3 attempts in a row were lost."),
        ("info", "A retry was asked for: the job waits for a worker."),
    ]


def test_the_line_of_an_end_comes_before_the_event_that_ends_a_stream(filled: Database) -> None:
    apply_job_actions(filled, (JobAction.CANCEL, {}))
    with filled.read() as session:
        found = (
            select(StoredJobEvent.type).where(StoredJobEvent.at >= 10).order_by(StoredJobEvent.id)
        )
        assert list(session.scalars(found)) == ["log", "state"]
