"""Migration 0011 on rows from before it: whoever was never served comes first, and nothing else changes."""

from collections.abc import Iterator
from pathlib import Path

import postgresql
import pytest
from sqlalchemy import func, select, table, text

from bench.service.fill import fill
from bench.service.series import Size
from core.db import migrate
from core.db.session import Database
from core.work import claim as claims

SIZE = Size(70, 5, owners=3, measured=1, keys=3)
TABLES = ("owners", "models", "tasks", "jobs", "versions")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services("postgresql"))])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of 0010 with owners, and jobs that wait."""
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'perennial.db'}" if sqlite else postgresql.create()
    db = Database(url)
    migrate.upgrade(db)
    fill(db, SIZE, quiet=True)
    migrate.downgrade(db, "0010")
    yield db
    db.close()
    if not sqlite:
        postgresql.drop(url)


def counted(db: Database) -> dict[str, int]:
    with db.read() as session:
        found = {name: session.scalar(select(func.count()).select_from(table(name))) for name in TABLES}
    return {name: count or 0 for name, count in found.items()}


def test_older_owners_were_never_served_and_their_jobs_are_claimed(before: Database) -> None:
    rows = counted(before)
    migrate.upgrade(before)
    with before.read() as session:
        assert set(session.execute(text("SELECT claimed_at FROM owners")).scalars()) == {None}
    found = claims.claim(before, "w", 60)
    assert found is not None
    with before.read() as session:
        served = session.execute(
            text("SELECT count(*) FROM owners WHERE claimed_at IS NOT NULL")
        ).scalar_one()
    assert served == 1 and counted(before) == rows
    claims.stopped(before, found)
    migrate.downgrade(before, "0010")
    assert counted(before) == rows
    migrate.upgrade(before)
