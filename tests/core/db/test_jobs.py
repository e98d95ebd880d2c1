"""Moving a job: state, revision, times, lease and event change together or not at all."""

import pytest
from sqlalchemy import select

from core.db.jobs import locked, move
from core.db.session import Database
from core.db.states import Action, State
from core.db.tables import Event, Job
from core.errors import WrongState


def states(database: Database) -> list[dict[str, object]]:
    with database.read() as session:
        query = select(Event).where(Event.type == "state", Event.at >= 10).order_by(Event.id)
        return [event.data for event in session.execute(query).scalars()]


def test_a_move_changes_state_revision_and_events(filled: Database) -> None:
    with filled.write() as session:
        job = locked(session, "job_1")
        assert job is not None
        assert move(session, job, Action.PAUSE, 10.0, {"reason": "asked"}) is State.PAUSED
    with filled.read() as session:
        job = session.get_one(Job, "job_1")
        assert (job.state, job.revision) == ("paused", 2)
    assert states(filled) == [{"state": "paused", "reason": "asked"}]


def test_asking_for_what_is_writes_nothing(filled: Database) -> None:
    for _ in range(2):
        with filled.write() as session:
            job = locked(session, "job_1")
            assert job is not None
            move(session, job, Action.CANCEL, 10.0)
    with filled.read() as session:
        assert session.get_one(Job, "job_1").revision == 2
    assert len(states(filled)) == 1


def test_a_refused_move_changes_nothing(filled: Database) -> None:
    with pytest.raises(WrongState), filled.write() as session:
        job = locked(session, "job_1")
        assert job is not None
        move(session, job, Action.PUBLISH, 10.0)
    assert states(filled) == []


def test_a_job_that_ends_has_no_lease_and_an_end(filled: Database) -> None:
    with filled.write() as session:
        job = locked(session, "job_1")
        assert job is not None
        job.fence, job.worker, job.lease_until, job.rung_at = 3, "w", 99.0, 5.0
        move(session, job, Action.START, 10.0)
        assert (job.fence, job.finished_at) == (3, None)
        move(session, job, Action.FAIL, 11.0)
        assert (job.fence, job.worker, job.lease_until, job.finished_at) == (None, None, None, 11.0)
        move(session, job, Action.RETRY, 12.0)
        assert (job.finished_at, job.rung_at) == (None, None)


def test_an_unknown_job_is_none(filled: Database) -> None:
    with filled.write() as session:
        assert locked(session, "job_9") is None
