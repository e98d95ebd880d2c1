"""Resumable uploads, and their pieces."""

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.db.tables.table import Table


class Upload(Table):
    """A file that arrives in pieces: the first `offset` bytes are stored."""

    __tablename__ = "uploads"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    length: Mapped[int]  # bytes of the whole file
    offset: Mapped[int] = mapped_column(default=0)
    details: Mapped[str | None] = mapped_column("metadata", Text)  # Upload-Metadata as sent
    # digest of the whole file, as announced by its client
    sha256: Mapped[str | None] = mapped_column(String(64))
    fence: Mapped[int] = mapped_column(default=0)  # rises with every writing request
    held_until: Mapped[float | None]  # end of the lease of a writing request, which may renew it
    expires_at: Mapped[float] = mapped_column(index=True)
    created_at: Mapped[float]


class Chunk(Table):
    """A piece of an upload, stored as an object of its own.

    Pieces follow each other without a gap.
    """

    __tablename__ = "upload_chunks"
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id"), primary_key=True)
    # In the key, so that two pieces never begin at the same byte, whatever two requests do.
    offset: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    bytes: Mapped[int]
    sha256: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(120), unique=True)  # key in the store
