"""Keep compiled SQL between tests.

A service has one engine for its whole life, but a test with an API of its own has a new one:
without this plugin, it spends a third of its time on compiling statements.
"""

import sqlalchemy
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite as Dialect
from sqlalchemy.util import LRUCache

from core.database import session

MOST_STATEMENTS = 5000


def pytest_configure() -> None:
    # The cache finds a compiled statement by its dialect, and each engine has its own: here all of
    # SQLite's are equal.
    Dialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
    Dialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[assignment, method-assign]
    statements: LRUCache[object, object] = LRUCache(MOST_STATEMENTS)

    def create_engine(url: str, **options: object) -> sqlalchemy.Engine:
        engine = sqlalchemy.create_engine(url, **options)
        if engine.dialect.name == "sqlite":
            engine.update_execution_options(compiled_cache=statements)
        return engine

    session.create_engine = create_engine  # type: ignore[attr-defined]
