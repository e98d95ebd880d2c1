"""An upload goes into the store before the transaction that names it; one that nothing names does not stay."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from core.db.session import Database
from core.errors import PerennialError
from core.store import Store

NamedOf = Callable[[Session, Collection[str]], set[str]]
"""Those of some keys that rows name."""


@contextmanager
def kept(db: Database, store: Store, key: str, path: Path, named: NamedOf) -> Iterator[None]:
    """Move the file at `path` into the store; the block names it in the database.

    A commit whose answer was lost may have happened after all: where the block fails, only what nothing names goes.
    """
    store.put_file(key, path, move=True)
    try:
        yield
    except (SQLAlchemyError, PerennialError):
        if not _is_named(db, key, named):
            store.delete(key)
        raise


def _is_named(db: Database, key: str, named: NamedOf) -> bool:
    """When nobody can say, it is taken to be named (the sweep looks again)."""
    try:
        with db.read() as session:
            return bool(named(session, [key]))
    except SQLAlchemyError:
        return True
