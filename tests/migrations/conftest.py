"""Databases of earlier revisions, on SQLite and on PostgreSQL; `databases.py` makes them.

A file whose tests start from rows of older code names their revision: `BEFORE = "0012"`.
"""

from collections.abc import Iterator
from pathlib import Path

import postgresql
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from core.db import migrate
from core.db.session import Database
from core.settings import Settings
from core.store.folder import FolderStore
from tests.core.work.conftest import Desk
from tests.migrations import databases


@pytest.fixture(scope="module", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """Keep the migrations that Alembic has read: it runs all their files at each upgrade, and here
    are hundreds.
    """
    kept: dict[str | None, ScriptDirectory] = {}
    read = ScriptDirectory.from_config

    def from_config(config: Config) -> ScriptDirectory:
        folder = config.get_main_option("script_location")
        if folder not in kept:
            kept[folder] = read(config)
        return kept[folder]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", staticmethod(from_config))
        yield


@pytest.fixture(
    scope="session",
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services("postgresql"))],
)
def dialect(request: pytest.FixtureRequest) -> str:
    """The database that a test runs on."""
    return str(request.param)


@pytest.fixture(scope="session")
def written_before(dialect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a database with the rows and the schema of `before-line.tar.gz`, to copy."""
    folder = tmp_path_factory.mktemp("before")
    databases.unpack(folder)
    url = databases.sqlite_url(folder)
    if dialect == "sqlite":
        yield url
        return
    filled = postgresql.create()
    databases.copy_rows(url, filled)
    yield filled
    postgresql.drop(filled)


@pytest.fixture
def empty(dialect: str, tmp_path: Path) -> Iterator[Database]:
    """A database without tables."""
    with databases.open_database(databases.create(dialect, tmp_path)) as db:
        yield db


@pytest.fixture
def older(
    dialect: str, written_before: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Database]:
    """Models, jobs, versions and events that older code wrote, with the schema of the file's
    `BEFORE`.
    """
    with databases.open_database(databases.create(dialect, tmp_path, written_before)) as db:
        migrate.upgrade(db, request.module.BEFORE)
        yield db


@pytest.fixture
def desk(empty: Database, tmp_path: Path) -> Desk:
    """A database of today's schema, and a store."""
    migrate.upgrade(empty)
    return Desk(
        empty, FolderStore(tmp_path / "store"), Settings(data_dir=tmp_path / "data"), tmp_path
    )
