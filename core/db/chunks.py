"""Pieces of uploads that can be resumed: their keys in the store, and who names them."""

from collections.abc import Collection

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from core.db.tables import Chunk, Upload

PREFIX = "uploads/"
"""Of all keys."""


def key(upload_id: str, offset: int, fence: int) -> str:
    """Where a piece lies that begins at a byte. Requests that write have a fence each: none overwrites another's."""
    return f"{PREFIX}{upload_id}/{offset:020d}-{fence:08d}"


def named(session: Session, keys: Collection[str]) -> set[str]:
    """Those of `keys` (at most some hundreds) that an upload names."""
    return set(session.scalars(select(Chunk.key).where(Chunk.key.in_(keys))))


def of(session: Session, upload_id: str) -> list[Chunk]:
    """The pieces of an upload, in order."""
    query = select(Chunk).where(Chunk.upload_id == upload_id).order_by(Chunk.offset)
    return list(session.scalars(query))


def forget(session: Session, upload_id: str) -> list[str]:
    """Delete an upload with its pieces, rows only; the keys, whose objects nothing names once this is committed."""
    return forget_all(session, [upload_id])


def forget_all(session: Session, upload_ids: Collection[str]) -> list[str]:
    """The same of some uploads (at most some hundreds) at once."""
    keys = list(session.scalars(select(Chunk.key).where(Chunk.upload_id.in_(upload_ids))))
    session.execute(delete(Chunk).where(Chunk.upload_id.in_(upload_ids)))
    session.execute(delete(Upload).where(Upload.id.in_(upload_ids)))
    return keys
