"""Migration 0017 on rows from before it: nothing else changes, and uploads that can be resumed find room."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import inspect, select

from core.db import migrate
from core.db.session import Database
from core.db.tables import Chunk, Owner, Upload
from tests.older_data import DIALECTS, written_before
from tests.test_upgrade_of_job_kinds import rows

BEFORE_IT = "0016"
OLDER = ("models", "tasks", "jobs", "versions", "owners")


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """What older code wrote, with the schema from before."""
    with written_before(request.param, tmp_path, BEFORE_IT) as db:
        yield db


def test_older_rows_are_as_they_were_both_ways_and_uploads_have_room(before: Database) -> None:
    older = {table: rows(before, table) for table in OLDER}
    migrate.upgrade(before, "0017")
    assert {table: rows(before, table) for table in OLDER} == older
    with before.write() as session:
        owner = session.scalars(select(Owner.id)).first()
        large = 1 << 40
        session.add(
            Upload(id="upl_1", owner_id=owner, length=large, offset=large, expires_at=1.5, created_at=0.5)
        )
        session.flush()
        session.add(
            Chunk(upload_id="upl_1", offset=large - 1, bytes=1, sha256="0" * 64, key="uploads/upl_1/1")
        )
    with before.read() as session:
        assert session.get_one(Upload, "upl_1").fence == 0
        assert session.get_one(Chunk, ("upl_1", large - 1)).bytes == 1
    migrate.downgrade(before, BEFORE_IT)
    assert not {"uploads", "upload_chunks"} & set(inspect(before.engine).get_table_names())
    assert {table: rows(before, table) for table in OLDER} == older
