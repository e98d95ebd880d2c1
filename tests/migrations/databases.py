"""Make databases for tests of migrations, among them what the former code wrote, and read them."""

import json
import sqlite3
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import postgresql
import psycopg
import pytest
from sqlalchemy import JSON, Float, TextClause, column, inspect, select, text, update
from sqlalchemy import table as of
from sqlalchemy.engine import make_url

from core.database.session import Database
from core.database.tables import DatabaseTable

FORMER = Path(__file__).parent / "data" / "head_before_0.1.0"
"""Start of the names of what `data/make_head_before.py` made."""
NO_TIMES = {"value", "best", "training_data_days", "requests_per_s", "trial_budget_s"}
"""Columns of real numbers that are not seconds since 1970."""
PARTS = (
    "columns",
    "pk_constraint",
    "foreign_keys",
    "unique_constraints",
    "check_constraints",
    "indexes",
)
Rows = dict[str, list[dict[str, Any]]]
Schema = dict[tuple[str, str], list[str]]


def make_sqlite_url(folder: Path) -> str:
    """Return the URL of the database in a folder."""
    return f"sqlite:///{folder / 'perennial.db'}"


def parametrize_pairs(
    name: str, values: Sequence[object], on_postgresql: Sequence[object]
) -> pytest.MarkDecorator:
    """Run a test with all values on SQLite and with some on PostgreSQL.
    The campaign runs all on both.
    """
    needed = pytest.mark.services("postgresql")
    pairs = [pytest.param("sqlite", value) for value in values]
    for value in values:
        marks = [needed] if value in on_postgresql else [needed, pytest.mark.campaign]
        pairs.append(pytest.param("postgresql", value, marks=marks))
    return pytest.mark.parametrize(("dialect", name), pairs, scope="session", indirect=["dialect"])


ON_SQLITE = pytest.mark.parametrize(
    "dialect",
    [
        "sqlite",
        pytest.param(
            "postgresql", marks=[pytest.mark.services("postgresql"), pytest.mark.campaign]
        ),
    ],
    scope="session",
    indirect=True,
)
"""Of a test whose behaviour is the same on both databases: the campaign runs it on PostgreSQL too."""

_unused: list[str] = []
"""URLs of databases of PostgreSQL that no test uses: emptying one takes a tenth of the time in
which one is dropped and another made."""


def create_database(dialect: str, folder: Path) -> str:
    """Return the URL of an empty database."""
    if dialect == "sqlite":
        return make_sqlite_url(folder)
    if not _unused:
        return postgresql.create_database()
    url = _unused.pop()
    with _connect_to_database(url) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return url


def drop_unused() -> None:
    """Drop the databases of PostgreSQL that no test uses."""
    while _unused:
        postgresql.drop_database(_unused.pop())


def _connect_to_database(url: str) -> "psycopg.Connection[tuple[Any, ...]]":
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain)


def restore_former(dialect: str, folder: Path, start: Path = FORMER) -> str:
    """Make a database with the rows and the schema of former code, and return its URL.

    Args:
        start: start of the names of its files.
    """
    url, statements = (
        create_database(dialect, folder),
        Path(f"{start}.{dialect}.sql").read_text("utf-8"),
    )
    if dialect == "sqlite":
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(folder / "perennial.db")) as connection:
            connection.executescript(statements)
    else:
        with _connect_to_database(url) as postgresql_connection:
            postgresql_connection.execute(statements.encode())
    return url


def unpack_former(dialect: str, folder: Path, start: Path = FORMER) -> None:
    """Put the store and the keys of former code into a data directory."""
    with tarfile.open(f"{start}.{dialect}.tar.gz") as archive:
        # Python 3.11 before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)


def move_times_to_today(url: str) -> None:
    """Move all times, since much is swept, expires or is sent after some days."""
    with closing(Database(url)) as db, db.write() as session:
        events = DatabaseTable.metadata.tables["events"]
        newest = max(session.scalars(events.select().with_only_columns(events.c.at)))
        late = time.time() - newest
        found = inspect(session.connection())
        present = found.get_table_names()
        for one in DatabaseTable.metadata.sorted_tables:
            if one.name not in present:
                continue  # a table of a later migration
            times = {c.name for c in one.columns if isinstance(c.type, Float)}
            # Columns of a later migration are missing, too.
            times &= {c["name"] for c in found.get_columns(one.name)}
            moved = {name: column(name) + late for name in sorted(times - NO_TIMES)}
            if moved:
                # A plain table: the rows are those of other code.
                session.execute(update(of(one.name, *map(column, moved))).values(moved))


@contextmanager
def open_database(url: str) -> Iterator[Database]:
    """Open a database; close it afterwards, and leave that of PostgreSQL to another test."""
    db = Database(url)
    try:
        yield db
    finally:
        db.close()
        if db.dialect == "postgresql":
            _unused.append(url)


def set_revision(db: Database, revision: str) -> None:
    """Give a database the revision of other code."""
    with db.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :new"), {"new": revision})


def read_rows(db: Database, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with db.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def read_tables(db: Database) -> Rows:
    """Return the rows of all tables in the order of their keys, with JSON decoded."""
    rows: Rows = {}
    with db.engine.connect() as connection:
        seen = inspect(connection)  # tables, which could be reflected, take three times as long
        columns = seen.get_multi_columns()
        for (_, table), key in seen.get_multi_pk_constraint().items():
            if table == "alembic_version":
                continue
            # SQLite gives JSON as text.
            texts = [
                each["name"]
                for each in columns[None, table]
                if isinstance(each["type"], JSON) and db.dialect == "sqlite"
            ]
            order = [column(name) for name in key["constrained_columns"]]
            query = select(text("*")).select_from(of(table)).order_by(*order)
            rows[table] = [dict(row) for row in connection.execute(query).mappings()]
            for row in rows[table]:
                row.update({name: row[name] and json.loads(row[name]) for name in texts})
    return rows


def read_schema(db: Database) -> Schema:
    """Return columns with types and defaults, keys, constraints and indexes of all tables.

    Each is a text; their order is left out.
    """
    seen, schema = inspect(db.engine), {}
    for part in PARTS:
        for (_, table), found in getattr(seen, f"get_multi_{part}")().items():
            if table != "alembic_version":
                items = found if isinstance(found, list) else [found]
                schema[table, part] = sorted(str(_normalise_value(item)) for item in items)
    if db.dialect == "sqlite":
        # Whether deleted numbers are never given again, which the inspector does not see.
        query = "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%' ORDER BY name"
        schema["", "autoincrement"] = [name for (name,) in read_rows(db, query)]
    return schema


def _normalise_value(value: Any) -> Any:
    """Return a value of the inspector so that equal ones are equal as texts."""
    if isinstance(value, dict):
        return {key: _normalise_value(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [_normalise_value(each) for each in value]
    return str(value) if isinstance(value, TextClause) else repr(value)
