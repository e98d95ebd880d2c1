"""Migration 0015 on rows from before it: older models have their version 0 and wait for nothing; others find
room."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import postgresql
import pytest
from sqlalchemy import select, text

from core.db import migrate
from core.db.session import Database
from core.db.tables import Job, Model, Weights
from core.requests.jobs import beside_the_line
from core.work.claim import awaits_base
from tests.test_upgrade_of_job_kinds import rows
from tests.test_upgrade_of_the_line import BEFORE, _copy

BEFORE_IT = "0014"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services("postgresql"))])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Models, jobs and events that older code wrote, with the schema from before."""
    with tarfile.open(BEFORE) as archive:
        archive.extract("perennial.db", tmp_path, filter="data")
    db = Database(f"sqlite:///{tmp_path / 'perennial.db'}")
    if request.param == "postgresql":
        old, db = db, Database(postgresql.create())
        migrate.upgrade(db, "0007")
        _copy(old, db)
        old.close()
    migrate.upgrade(db, BEFORE_IT)
    yield db
    db.close()
    if request.param == "postgresql":
        postgresql.drop(db.url)


def test_older_models_wait_for_no_base_and_are_otherwise_as_they_were_both_ways(before: Database) -> None:
    models, jobs = rows(before, "models"), rows(before, "jobs")
    migrate.upgrade(before)
    assert rows(before, "models") == [{**model, "base_job": None} for model in models]
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
