"""State of objects in the store: damage, the progress of the scrub, and uploads in pieces."""

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.database.tables.table import DatabaseTable


class StoredObjectDamageMark(DatabaseTable):
    """Database row of a stored object that was found missing or with another digest."""

    __tablename__ = "damage"
    key: Mapped[str] = mapped_column(String(512), primary_key=True)  # key in the store
    kind: Mapped[str] = mapped_column(String(8))  # missing, digest
    # tag of the object as it was read; a changed one is checked again
    tag: Mapped[str] = mapped_column(String(200))
    found_at: Mapped[float]


class IntegrityScrubProgress(DatabaseTable):
    """The database row with the progress of the scrub, which checks all stored objects; held under
    a lease.
    """

    __tablename__ = "scrub"
    # always 1; the sequence that PostgreSQL has for it is not used
    id: Mapped[int] = mapped_column(primary_key=True)
    worker: Mapped[str | None] = mapped_column(String(120))
    fence: Mapped[int] = mapped_column(default=0)  # rises with every lease
    lease_until: Mapped[float] = mapped_column(default=0.0)
    # key of the last hashed object; empty: begin
    cursor: Mapped[str] = mapped_column(String(512), default="")
    began_at: Mapped[float | None]  # the pass under way, or the last one
    ended_at: Mapped[float | None]  # the last whole pass
    objects: Mapped[int] = mapped_column(default=0)  # objects hashed in all passes
    bytes: Mapped[int] = mapped_column(default=0)


class Upload(DatabaseTable):
    """Database row of a resumable upload: a file whose first `offset` bytes are stored."""

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


class StoredUploadPiece(DatabaseTable):
    """Database row of one piece of a resumable upload, stored as an object of its own.

    Pieces follow each other without a gap.
    """

    __tablename__ = "upload_chunks"
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id"), primary_key=True)
    # In the key, so that two pieces never begin at the same byte, whatever two requests do.
    offset: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    bytes: Mapped[int]
    sha256: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(120), unique=True)  # key in the store
