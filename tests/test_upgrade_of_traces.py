"""Migration 0022 on rows from before it: tasks keep what they had, and have no hashes."""

from collections.abc import Iterator
from pathlib import Path

import postgresql
import pytest
from sqlalchemy import text

from bench.service.fill import fill
from bench.service.series import Size
from core.db import migrate
from core.db.session import Database

SIZE = Size(40, 5, owners=2, measured=1, keys=2)
KEPT = "SELECT id, number, classes, report, train_sha256, held_out_sha256, n_train FROM tasks ORDER BY id"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services("postgresql"))])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of the revision before, with tasks."""
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'perennial.db'}" if sqlite else postgresql.create()
    db = Database(url)
    migrate.upgrade(db)
    fill(db, SIZE, quiet=True)
    migrate.downgrade(db, "0021")
    yield db
    db.close()
    if not sqlite:
        postgresql.drop(url)


def test_older_tasks_keep_what_they_had_and_have_no_hashes(before: Database) -> None:
    with before.read() as session:
        rows = session.execute(text(KEPT)).all()
    assert rows
    migrate.upgrade(before)
    with before.read() as session:
        assert session.execute(text(KEPT)).all() == rows
        found = session.execute(text("SELECT DISTINCT traces_sha256, traces_bytes FROM tasks")).all()
        assert found == [(None, None)]
    migrate.downgrade(before, "0021")
    with before.read() as session:
        assert session.execute(text(KEPT)).all() == rows
