"""Migration 0018 on rows from before it: older downloads stay as they were, and those that jobs made go with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from core.db import migrate
from core.db.session import Database
from core.db.tables import Export, Exporter, ExportJob, Model, Version
from core.requests.jobs import beside_the_line
from tests.older_data import DIALECTS, written_before
from tests.test_upgrade_of_job_kinds import rows

BEFORE_IT = "0017"


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Models, versions and jobs that older code wrote, with the schema from before."""
    with written_before(request.param, tmp_path, BEFORE_IT) as db:
        yield db


def stored(db: Database) -> list[object]:
    """Versions, jobs and downloads, as they are in the database."""
    with db.read() as session:
        exports = session.execute(text("SELECT * FROM exports ORDER BY version_id, format")).all()
    return [rows(db, "versions"), rows(db, "jobs"), exports]


def test_older_rows_are_as_they_were_both_ways(before: Database) -> None:
    found = stored(before)
    migrate.upgrade(before)
    assert stored(before) == found
    with before.write() as session:
        version = session.query(Version).first()
        assert version is not None
        model = session.get_one(Model, version.model_id)
        now = before.now(session)
        job = beside_the_line(model, "export", {}, {}, now)
        session.add(job)
        session.flush()
        session.add(ExportJob(version_id=version.id, format="onnx", job_id=job.id, fence=None))
        session.add(Exporter(worker="w1", seen_at=now))
        session.add(Export(version_id=version.id, format="onnx", sha256="0" * 64, bytes=1, created_at=now))
    migrate.downgrade(before, BEFORE_IT)
    assert stored(before) == found
    with before.read() as session:
        assert session.scalar(text("SELECT count(*) FROM jobs WHERE kind = 'export'")) == 0
