"""Storing an upload before the transaction that names it, and deleting it if nothing names it."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from core.database.session import Database
from core.errors import PerennialError
from core.storage import ObjectStorage

NamedOf = Callable[[Session, Collection[str]], set[str]]
"""Function that returns those of the given keys that rows name."""


@contextmanager
def store_archive_unless_block_fails(
    db: Database, store: ObjectStorage, key: str, path: Path, named: NamedOf
) -> Iterator[None]:
    """Move an archive into the store for the `with` block that adds its database row; remove it on
    failure.

    A commit may have succeeded although its response was lost. When the block fails, the file is
    therefore deleted only if no row names it.

    Args:
        key: key of the archive in the store.
        path: the file that is moved.
        named: function that returns those of the given keys that rows name.
    """
    # Before the transaction, so that it holds no lock meanwhile and never names a missing file.
    store.put_file(key, path, move=True)
    try:
        yield
    except (SQLAlchemyError, PerennialError):
        if not _may_archive_key_be_referenced(db, key, named):
            store.delete(key)
        raise


def _may_archive_key_be_referenced(db: Database, key: str, named: NamedOf) -> bool:
    """Return True if a row refers to the archive's store key, or if the database cannot say.

    The sweep looks at the file again later.
    """
    try:
        with db.read() as session:
            return bool(named(session, [key]))
    except SQLAlchemyError:
        # In doubt the file stays: deleting it could lose an accepted batch.
        return True
