"""One database of each kind for many tests, emptied before each: far quicker than new ones.

On both the statements stay compiled, since the engine stays.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import postgresql
import pytest

from core.db.session import Database
from core.db.tables import Table


@pytest.fixture(scope="session")
def _shared_postgres(request: pytest.FixtureRequest) -> Iterator[Database]:
    template = postgresql.name_of(request.getfixturevalue("_postgres_template"))
    url = postgresql.create(template)
    db = Database(url)
    yield db
    db.close()
    postgresql.drop(url)


@pytest.fixture(scope="session")
def _shared_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Database]]:
    path = tmp_path_factory.mktemp("shared") / "perennial-test.db"
    db = Database(f"sqlite:///{path}")
    yield path, db
    db.close()


@pytest.fixture
def emptied(request: pytest.FixtureRequest) -> Callable[[str], Database]:
    """dialect → a database with tables and no rows; ids of events go on counting on PostgreSQL."""

    def get(dialect: str) -> Database:
        if dialect == "sqlite":
            path, db = request.getfixturevalue("_shared_sqlite")
            db.close()
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)
            path.write_bytes(request.getfixturevalue("_sqlite_template"))
            return db
        shared: Database = request.getfixturevalue("_shared_postgres")
        with shared.write() as session:
            for table in reversed(Table.metadata.sorted_tables):
                session.execute(table.delete())
        return shared

    return get
