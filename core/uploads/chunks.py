"""Pieces of resumable uploads: their keys in the store, and their rows."""

from collections.abc import Collection

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from core.database.tables import StoredUploadPiece, Upload

PREFIX = "uploads/"
"""Prefix of all keys."""


def make_upload_piece_key(upload_id: str, offset: int, fence: int) -> str:
    """Return the store key of an upload's piece that begins at a byte.

    Each writing request has its own fence, so none overwrites another's.
    """
    return f"{PREFIX}{upload_id}/{offset:020d}-{fence:08d}"


def find_referenced_upload_piece_keys(session: Session, keys: Collection[str]) -> set[str]:
    """Return which store `keys` (at most some hundreds) belong to pieces of existing uploads."""
    return set(
        session.scalars(select(StoredUploadPiece.key).where(StoredUploadPiece.key.in_(keys)))
    )


def list_upload_pieces(session: Session, upload_id: str) -> list[StoredUploadPiece]:
    """Return the stored pieces of an upload, in order."""
    query = (
        select(StoredUploadPiece)
        .where(StoredUploadPiece.upload_id == upload_id)
        .order_by(StoredUploadPiece.offset)
    )
    return list(session.scalars(query))


def delete_upload_rows(session: Session, upload_id: str) -> list[str]:
    """Delete the database rows of an upload and of its pieces.

    Return the keys, whose objects are unused after the commit.
    """
    return delete_rows_of_uploads(session, [upload_id])


def delete_rows_of_uploads(session: Session, upload_ids: Collection[str]) -> list[str]:
    """Delete the database rows of several uploads (at most some hundreds) and of their pieces at
    once.
    """
    keys = list(
        session.scalars(
            select(StoredUploadPiece.key).where(StoredUploadPiece.upload_id.in_(upload_ids))
        )
    )
    # Before the uploads, to which the pieces have a foreign key.
    session.execute(delete(StoredUploadPiece).where(StoredUploadPiece.upload_id.in_(upload_ids)))
    session.execute(delete(Upload).where(Upload.id.in_(upload_ids)))
    return keys
