"""Databases for tests of migrations: new ones, and one that older code wrote (`data/before-line.tar.gz`)."""

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import postgresql
import pytest
from sqlalchemy import JSON, Boolean, Connection, MetaData, create_engine, text

from core.db import migrate
from core.db.session import Database

DIALECTS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.services("postgresql")))
"""Parameters of a fixture."""
ARCHIVE = Path(__file__).parent / "data" / "before-line.tar.gz"
ITS_REVISION = "0007"


@contextmanager
def empty(dialect: str, folder: Path) -> Iterator[Database]:
    """A database without tables, gone afterwards."""
    url = f"sqlite:///{folder / 'perennial.db'}" if dialect == "sqlite" else postgresql.create()
    db = Database(url)
    try:
        yield db
    finally:
        db.close()
        if dialect == "postgresql":
            postgresql.drop(url)


@contextmanager
def written_before(dialect: str, folder: Path, revision: str = ITS_REVISION) -> Iterator[Database]:
    """Models, jobs, versions and events that older code wrote, with the schema of a revision."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extract("perennial.db", folder, filter="data")
    with empty(dialect, folder) as db:
        if dialect == "postgresql":
            migrate.upgrade(db, ITS_REVISION)
            _copy(f"sqlite:///{folder / 'perennial.db'}", db)
        migrate.upgrade(db, revision)
        yield db


def everything(db: Database) -> list[Any]:
    """What the migration fills, but for the date that counts from now."""
    queries = (
        "SELECT id, head, production_follows FROM models ORDER BY id",
        "SELECT id, standing, standing_at, stops FROM tasks ORDER BY id",
        "SELECT id, again FROM jobs ORDER BY id",
    )
    versions = rows(db, "SELECT id, status, gate, manifest FROM versions ORDER BY id")
    columns = [[tuple(row) for row in rows(db, query)] for query in queries]
    return [
        *columns,
        [(id_, status, json_of(gate), json_of(manifest)) for id_, status, gate, manifest in versions],
    ]


def rows(db: Database, query: str) -> list[Any]:
    """What a query finds."""
    with db.engine.connect() as connection:
        return list(connection.execute(text(query)).all())


def json_of(value: Any) -> Any:
    """A value of a JSON column, which SQLite gives as text."""
    return json.loads(value) if isinstance(value, str) else value


def _copy(old: str, new: Database) -> None:
    """Put all rows of a SQLite database into a PostgreSQL one of the same revision."""
    schema = MetaData()
    schema.reflect(new.engine)
    source = create_engine(old)
    with source.connect() as reading, new.engine.begin() as writing:
        for table in schema.sorted_tables:
            if table.name != "alembic_version":
                rows = [_typed(table, row) for row in _all(reading, table.name)]
                if rows:
                    writing.execute(table.insert(), rows)
        writing.execute(
            text("SELECT setval('events_id_seq', (SELECT max(id) FROM events))")
        )  # copied, not counted
    source.dispose()


def _all(connection: Connection, table: str) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.exec_driver_sql(f"SELECT * FROM {table}").mappings()]  # noqa: S608


def _typed(table: Any, row: dict[str, Any]) -> dict[str, Any]:
    typed = {}
    for name, value in row.items():
        kind = table.c[name].type
        if value is not None and isinstance(kind, JSON):
            value = json.loads(value)
        elif value is not None and isinstance(kind, Boolean):
            value = bool(value)
        typed[name] = value
    return typed
