"""Make databases for tests of migrations, among them what older code wrote, and read their rows."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import postgresql
from sqlalchemy import JSON, MetaData, column, func, insert, inspect, select, text
from sqlalchemy import table as of
from sqlalchemy.engine import make_url

from core.db import migrate
from core.db.session import Database

ARCHIVE = Path(__file__).parents[1] / "data" / "before-line.tar.gz"
"""A data directory as code of the revision `FIRST` left it; `tests/data/make_before_line.py` made
it.
"""
FIRST = "0007"
"""The revision of the archive."""
Row = dict[str, Any]
Rows = dict[str, list[Row]]
Schema = dict[str, tuple[Any, Any]]


def unpack(folder: Path) -> None:
    """Put the archive's database into a folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extract("perennial.db", folder, filter="data")


def sqlite_url(folder: Path) -> str:
    """Return the URL of the database in a folder."""
    return f"sqlite:///{folder / 'perennial.db'}"


def create(dialect: str, folder: Path, template: str | None = None) -> str:
    """Make a database, empty or as a copy of another, and return its URL."""
    if dialect == "postgresql":
        return postgresql.create(*([] if template is None else [postgresql.name_of(template)]))
    if template is not None:
        shutil.copy(make_url(template).database or "", folder / "perennial.db")
    return sqlite_url(folder)


@contextmanager
def open_database(url: str) -> Iterator[Database]:
    """Open a database that `create` has made; close it afterwards, and drop it on PostgreSQL."""
    db = Database(url)
    try:
        yield db
    finally:
        db.close()
        if db.dialect == "postgresql":
            postgresql.drop(url)


def copy_rows(source: str, target: str) -> None:
    """Fill an empty PostgreSQL database with the schema of `FIRST` and the rows of a SQLite one."""
    old, db = Database(source), Database(target)
    migrate.upgrade(db, FIRST)
    schema = MetaData()
    schema.reflect(db.engine)
    with db.engine.begin() as connection:
        rows, _ = read_tables(old)
        for table in schema.sorted_tables:
            if rows.get(table.name):
                connection.execute(insert(table), rows[table.name])
        newest = select(func.max(schema.tables["events"].c.id)).scalar_subquery()
        # Copied ids do not move the sequence.
        connection.execute(select(func.setval("events_id_seq", newest)))
    db.close()
    old.close()


def read_rows(db: Database, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with db.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def read_tables(db: Database) -> tuple[Rows, Schema]:
    """Return the rows of all tables in the order of their keys, with JSON decoded; and columns and
    indexes.
    """
    rows: Rows = {}
    schema: Schema = {}
    with db.engine.connect() as connection:
        seen = inspect(connection)  # tables, which could be reflected, take three times as long
        columns, indexes = seen.get_multi_columns(), seen.get_multi_indexes()
        for (_, table), key in seen.get_multi_pk_constraint().items():
            if table == "alembic_version":
                continue
            types = {each["name"]: each["type"] for each in columns[None, table]}
            texts = [
                name
                for name, kind in types.items()
                if isinstance(kind, JSON) and db.dialect == "sqlite"
            ]
            order = map(column, key["constrained_columns"])
            query = select(text("*")).select_from(of(table)).order_by(*order)
            rows[table] = [dict(row) for row in connection.execute(query).mappings()]
            for row in rows[table]:
                row.update({name: decode_json(row[name]) for name in texts})
            schema[table] = (
                {
                    each["name"]: (str(each["type"]), each["nullable"])
                    for each in columns[None, table]
                },
                {
                    str(index["name"]): (index["column_names"], bool(index["unique"]))
                    for index in indexes[None, table]
                },
            )
    return rows, schema


def decode_json(value: Any) -> Any:
    """Decode a value of a JSON column that a textual query found: SQLite gives text."""
    return json.loads(value) if isinstance(value, str) else value
