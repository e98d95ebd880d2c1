"""Migration 0013 on rows from before it: every job is of the kind `learn`, as it was; other kinds find room
beside them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from core.db import migrate
from core.db.session import Database
from core.db.tables import Event, Job, Model
from core.requests.jobs import beside_the_line
from core.work import claim as claims
from core.work.kinds import Done
from tests.older_data import DIALECTS, written_before

BEFORE_IT = "0012"
FILLED = {
    "kind": "learn",
    "report": None,
    "archive_key": None,
    "archive_sha256": None,
    "archive_bytes": None,
}


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Models, jobs and events that older code wrote, with the schema from before."""
    with written_before(request.param, tmp_path, BEFORE_IT) as db:
        yield db


def rows(db: Database, table: str) -> list[dict[str, Any]]:
    with db.engine.connect() as connection:
        found = connection.execute(text(f"SELECT * FROM {table} ORDER BY id"))  # noqa: S608
        return [dict(row) for row in found.mappings()]


def schema(db: Database) -> tuple[Any, Any]:
    """Columns and indexes of the jobs."""
    seen = inspect(db.engine)
    columns = [(c["name"], str(c["type"]), c["nullable"]) for c in seen.get_columns("jobs")]
    return columns, sorted((str(i["name"]), str(i["column_names"])) for i in seen.get_indexes("jobs"))


def test_older_jobs_learn_and_are_otherwise_as_they_were_both_ways(before: Database) -> None:
    jobs, events, form = rows(before, "jobs"), rows(before, "events"), schema(before)
    assert len(jobs) > 20 and len(events) > 100
    migrate.upgrade(before)
    assert [{**job, **FILLED} for job in jobs] == rows(before, "jobs")
    assert rows(before, "events") == events
    assert {owner["overtook"] for owner in rows(before, "owners")} <= {0}
    migrate.downgrade(before, BEFORE_IT)
    assert (rows(before, "jobs"), rows(before, "events"), schema(before)) == (jobs, events, form)


def test_a_check_finds_room_beside_older_jobs_and_goes_on_the_way_back(before: Database) -> None:
    jobs = rows(before, "jobs")
    migrate.upgrade(before)
    with before.write() as session:
        model = session.get_one(Model, jobs[0]["model_id"])
        check = beside_the_line(model, "validate", {}, {}, before.now(session))
        session.add(check)
        session.flush()
        session.add(Event(job_id=check.id, type="state", data={"state": "queued"}, at=0.0))
        job_id = check.id
    claim = claims.claim(before, "w", 60)
    assert claim is not None and claim.job_id == job_id
    claims.finish(before, claim, Done({"valid": True}))
    with before.read() as session:
        assert session.get_one(Job, job_id).report == {"valid": True}
    migrate.downgrade(before, BEFORE_IT)
    assert [job["id"] for job in rows(before, "jobs")] == [job["id"] for job in jobs]


def test_references_of_jobs_are_still_checked(before: Database) -> None:
    migrate.upgrade(before)
    job = rows(before, "jobs")[0]["id"]
    for statement in (
        "UPDATE jobs SET task_id = 'tsk_none' WHERE id = :job",
        "UPDATE jobs SET model_id = 'mdl_none' WHERE id = :job",
        "UPDATE events SET job_id = 'job_none' WHERE job_id = :job",
    ):
        with pytest.raises(IntegrityError), before.write() as session:
            session.execute(text(statement), {"job": job})
    if before.dialect == "sqlite":
        with before.read() as session:
            assert session.scalar(text("PRAGMA integrity_check")) == "ok"
            assert session.execute(text("PRAGMA foreign_key_check")).all() == []
