"""Keeps compiled SQL between tests, which each would compile again.

A service has one engine for its whole life. A test that begins with an API of its own has a new one: compiling its
statements was a third of its time.
"""

import sqlalchemy
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite as Dialect
from sqlalchemy.util import LRUCache

from core.db import session

MOST_STATEMENTS = 5000


def pytest_configure() -> None:
    # A compiled statement is kept under its dialect, of which each engine has its own: all of SQLite's are alike here.
    Dialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
    Dialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[assignment, method-assign]
    statements: LRUCache[object, object] = LRUCache(MOST_STATEMENTS)

    def create_engine(url: str, **options: object) -> sqlalchemy.Engine:
        engine = sqlalchemy.create_engine(url, **options)
        if engine.dialect.name == "sqlite":
            engine.update_execution_options(compiled_cache=statements)
        return engine

    session.create_engine = create_engine  # type: ignore[attr-defined]
