"""An archive goes into the store before the transaction that names it; one that nothing names does not stay."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from core.db import archives
from core.db.session import Database
from core.errors import PerennialError
from core.failpoints import hit
from core.store import Store


@contextmanager
def kept(db: Database, store: Store, key: str, path: Path) -> Iterator[None]:
    """Move the file at `path` into the store; the block names it in the database.

    A commit whose answer was lost may have happened after all: where the block fails, only what nothing names goes.
    """
    store.put_file(key, path, move=True)
    hit("submit-stored")
    try:
        yield
    except (SQLAlchemyError, PerennialError):
        if not _is_named(db, key):
            store.delete(key)
        raise


def _is_named(db: Database, key: str) -> bool:
    """When nobody can say, it is taken to be named (the sweep looks again)."""
    try:
        with db.read() as session:
            return archives.sha256_of(session, key) is not None
    except SQLAlchemyError:
        return True
