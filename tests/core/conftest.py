"""One PostgreSQL database for many tests, emptied before each: far quicker than a new one per test."""

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


@pytest.fixture
def emptied(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Database]:
    """dialect → a database with tables and no rows; ids of events go on counting."""

    def get(dialect: str) -> Database:
        if dialect == "sqlite":
            path = tmp_path / "perennial-test.db"
            path.write_bytes(request.getfixturevalue("_sqlite_template"))
            db = Database(f"sqlite:///{path}")
            request.addfinalizer(db.close)
            return db
        shared: Database = request.getfixturevalue("_shared_postgres")
        with shared.write() as session:
            for table in reversed(Table.metadata.sorted_tables):
                session.execute(table.delete())
        return shared

    return get
