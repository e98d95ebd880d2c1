"""The fixtures `database` and `postgres_url`, and the mark `both_databases`.

A test that takes `database` runs on SQLite; the campaign repeats it on PostgreSQL. A test of SQL
that differs between them (locks, plans, JSON, constraints) has the mark `both_databases` and runs
on both every time.

One database of each kind serves all tests of a process and is emptied before each: that is far
quicker than a new one, and its statements stay compiled, since the engine stays.
"""

from collections.abc import Iterator
from pathlib import Path

import postgresql
import pytest
from processes import ServiceMissing
from sqlalchemy import text

from core.database import migrate
from core.database.session import Database
from core.database.tables import DatabaseTable

_EMPTY_ALL = ";".join(
    str(table.delete()) for table in reversed(DatabaseTable.metadata.sorted_tables)
)
"""All deletions in one round trip to PostgreSQL: one trip per table takes longer than the
deletions.
"""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "both_databases: on SQLite and PostgreSQL in every run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    own = (mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "database" not in metafunc.fixturenames or "database" in own:
        return
    marks = [pytest.mark.services("postgresql")]
    if metafunc.definition.get_closest_marker("both_databases") is None:
        marks.append(pytest.mark.campaign)
    metafunc.parametrize(
        "database", ["sqlite", pytest.param("postgresql", marks=marks)], indirect=True
    )


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Database:
    """A database with tables and no rows; on PostgreSQL, the ids of events continue from earlier
    tests.
    """
    if request.param == "sqlite":
        path, db = request.getfixturevalue("_shared_sqlite")
        db.close()
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        path.write_bytes(request.getfixturevalue("_sqlite_template"))
        return db  # type: ignore[no-any-return]
    shared: Database = request.getfixturevalue("_shared_postgres")
    with shared.write() as session:
        session.execute(text(_EMPTY_ALL))
    return shared


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL database of the module, without tables."""
    url = _create_or_fail()
    yield url
    postgresql.drop_database(url)


@pytest.fixture(scope="session")
def _shared_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Database]]:
    path = tmp_path_factory.mktemp("shared") / "perennial-test.db"
    db = Database(f"sqlite:///{path}")
    yield path, db
    db.close()


@pytest.fixture(scope="session")
def _shared_postgres(_postgres_template: str) -> Iterator[Database]:
    url = postgresql.create_database(postgresql.get_database_name(_postgres_template))
    db = Database(url)
    yield db
    db.close()
    postgresql.drop_database(url)


@pytest.fixture(scope="session")
def _postgres_template() -> Iterator[str]:
    url = _create_or_fail()
    _make_tables(url)
    yield url
    postgresql.drop_database(url)


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("template") / "template.db"
    _make_tables(f"sqlite:///{path}")
    return path.read_bytes()


def _make_tables(url: str) -> None:
    db = Database(url)
    migrate.upgrade_schema(
        db
    )  # not from the metadata: which of two indexes SQLite uses may depend on their order
    db.close()


def _create_or_fail() -> str:
    try:
        return postgresql.create_database()
    except ServiceMissing as error:
        pytest.fail(str(error), pytrace=False)
