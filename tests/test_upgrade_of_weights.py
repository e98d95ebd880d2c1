"""Migration 0015 on rows from before it: older models have their version 0 and wait for nothing; others find
room."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, text

from core.db import migrate
from core.db.session import Database
from core.db.tables import Job, Model, Weights
from core.requests.jobs import beside_the_line
from core.work.claim import awaits_base
from tests.older_data import DIALECTS, written_before
from tests.test_upgrade_of_job_kinds import rows

BEFORE_IT = "0014"


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Models, jobs and events that older code wrote, with the schema from before."""
    with written_before(request.param, tmp_path, BEFORE_IT) as db:
        yield db


def test_older_models_wait_for_no_base_and_are_otherwise_as_they_were_both_ways(before: Database) -> None:
    models, jobs = rows(before, "models"), rows(before, "jobs")
    migrate.upgrade(before)
    assert rows(before, "models") == [
        {**model, "base_job": None, "description": None, "tags": None} for model in models
    ]
    with before.read() as session:
        assert session.scalars(select(Model.id).where(awaits_base(Model.id))).all() == []
    with before.write() as session:
        old = session.get_one(Model, models[0]["id"])
        copied = {name: value for name, value in models[0].items() if name not in ("id", "name")}
        fresh = Model(**{key: getattr(old, key) for key in copied}, id="mdl_fresh", name="fresh")
        session.add(fresh)
        session.flush()
        job = beside_the_line(fresh, "fetch", {}, {}, before.now(session))
        fresh.base_job = job.id
        session.add(job)
        session.add(Weights(repository="timm/net", sha256="0" * 64, bytes=1))
    with before.read() as session:
        assert session.scalars(select(Model.id).where(awaits_base(Model.id))).all() == ["mdl_fresh"]
    migrate.downgrade(before, BEFORE_IT)
    assert (rows(before, "models"), rows(before, "jobs")) == (models, jobs)
    with before.read() as session:
        assert session.scalar(text("SELECT count(*) FROM jobs WHERE kind = 'fetch'")) == 0
        assert len(session.scalars(select(Job.id)).all()) == len(jobs)
