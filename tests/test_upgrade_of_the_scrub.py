"""Migration 0010 on a database from before it: nothing of it is changed, and what it names is scrubbed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import MetaData, text

from core.db import migrate
from core.db.session import Database
from core.db.tables import Scrub
from core.settings import Settings
from core.store.folder import FolderStore
from core.work.scrub import Scrubber
from tests.older_data import DIALECTS, everything, written_before

NEW = {"damage", "scrub"}
BEFORE_IT = "0009"


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of models, jobs and versions, with the schema from before."""
    with written_before(request.param, tmp_path, BEFORE_IT) as db:
        yield db


def tables(db: Database) -> set[str]:
    found = MetaData()
    found.reflect(db.engine)
    return set(found.tables)


def test_older_data_stays_as_it_is_both_ways_and_is_scrubbed(before: Database, tmp_path: Path) -> None:
    old = everything(before)
    migrate.upgrade(before, "0010")
    assert tables(before) >= NEW
    assert everything(before) == old
    migrate.upgrade(before)  # as far as the scrub reads it today
    store = FolderStore(tmp_path / "store")
    store.prepare()
    Scrubber(before, store, Settings(data_dir=tmp_path), "w", lambda _seconds: False).round()
    with before.read() as session:
        assert session.get_one(Scrub, 1).objects > 10
        # The old store is not there: all that rows name is missing.
        marks = session.scalar(text("SELECT count(*) FROM damage WHERE kind = 'missing'"))
        assert marks == session.get_one(Scrub, 1).objects
    migrate.downgrade(before, BEFORE_IT)
    assert everything(before) == old and not NEW & tables(before)
