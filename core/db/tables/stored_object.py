"""State of objects in the store: damage, and the progress of the scrub."""

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from core.db.tables.table import Table


class Damage(Table):
    """A stored object that was found missing or with another digest, see core.damage."""

    __tablename__ = "damage"
    key: Mapped[str] = mapped_column(String(512), primary_key=True)  # key in the store
    kind: Mapped[str] = mapped_column(String(8))  # missing, digest
    # tag of the object as it was read; a changed one is checked again
    tag: Mapped[str] = mapped_column(String(200))
    found_at: Mapped[float]


class Scrub(Table):
    """Progress of the scrub of all stored objects, see core.work.scrub: one row, under a lease."""

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
