"""Keeps between tests what each would make again, and always the same: compiled SQL and the parsed catalogue.

A service has one engine and one catalogue for its whole life. A test that begins with an API of its own has new
ones: compiling its statements and parsing the catalogue were half of its time.
"""

import functools
import json
from pathlib import Path

import sqlalchemy
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite as Dialect
from sqlalchemy.util import LRUCache

from core import catalogue
from core.db import session
from core.protocol.catalogue import Catalogue

MOST_STATEMENTS = 5000


def pytest_configure() -> None:
    Dialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
    Dialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[assignment, method-assign]
    statements: LRUCache[object, object] = LRUCache(MOST_STATEMENTS)

    @functools.wraps(sqlalchemy.create_engine)
    def create_engine(url: str, **options: object) -> sqlalchemy.Engine:
        engine = sqlalchemy.create_engine(url, **options)
        if engine.dialect.name == "sqlite":
            engine.update_execution_options(compiled_cache=statements)
        return engine

    session.create_engine = create_engine  # type: ignore[attr-defined]
    catalogue._read = _read_catalogue


def _read_catalogue(path: Path) -> Catalogue:
    file = path.resolve(strict=True)
    return _parse_catalogue(file, file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _parse_catalogue(file: Path, written: int) -> Catalogue:
    content: Catalogue = json.loads(file.read_bytes())
    return content
