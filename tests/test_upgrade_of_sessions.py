"""Migration 0019 on rows from before it: nothing else changes, and sessions find room."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import inspect, select

from core.db import migrate
from core.db.session import Database
from core.db.tables import Key, Owner, UserSession
from tests.older_data import DIALECTS, written_before
from tests.test_upgrade_of_job_kinds import rows

BEFORE_IT = "0018"
OLDER = ("models", "tasks", "jobs", "versions", "owners", "keys")


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """What older code wrote, with the schema from before."""
    with written_before(request.param, tmp_path, BEFORE_IT) as db:
        with db.write() as session:
            owner = session.scalars(select(Owner.id)).first()
            named = {"name": "k", "prefix": "p", "hash": "0" * 64, "scope": "read", "created_at": 0.5}
            session.add(Key(id="key_1", owner_id=owner, **named))
        yield db


def test_older_rows_are_as_they_were_both_ways_and_sessions_have_room(before: Database) -> None:
    older = {table: rows(before, table) for table in OLDER}
    migrate.upgrade(before, "0019")
    assert {table: rows(before, table) for table in OLDER} == older
    with before.write() as session:
        times = {"created_at": 0.5, "seen_at": 1.5, "expires_at": 2.5}
        session.add(UserSession(hash="f" * 64, key_id="key_1", **times))
    with before.read() as session:
        assert session.get_one(UserSession, "f" * 64).seen_at == 1.5
    migrate.downgrade(before, BEFORE_IT)
    assert "sessions" not in inspect(before.engine).get_table_names()
    assert {table: rows(before, table) for table in OLDER} == older
