"""Uploads that can be resumed, and the pieces in which they come."""

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.db.tables.table import Table


class Upload(Table):
    """A file that comes in pieces: the first `offset` bytes are in the store."""

    __tablename__ = "uploads"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    length: Mapped[int]  # bytes of the whole file
    offset: Mapped[int] = mapped_column(default=0)
    details: Mapped[str | None] = mapped_column("metadata", Text)  # Upload-Metadata as it was sent
    sha256: Mapped[str | None] = mapped_column(String(64))  # of the whole file, as its client announced it
    fence: Mapped[int] = mapped_column(default=0)  # rises with every request that writes
    held_until: Mapped[float | None]  # a request writes until then, unless it says so again
    expires_at: Mapped[float] = mapped_column(index=True)
    created_at: Mapped[float]


class Chunk(Table):
    """A piece of an upload, an object of its own in the store; they follow each other without a gap."""

    __tablename__ = "upload_chunks"
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id"), primary_key=True)
    offset: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    bytes: Mapped[int]
    sha256: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(120), unique=True)  # in the store
