"""Edits of what a model was taught, and the class names that they replaced."""

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from core.contract.document import JsonObject
from core.contract.edit import EditUndoRecord
from core.database.documents import DocumentColumn
from core.database.tables.table import JSON_COLUMN, DatabaseTable


class Edit(DatabaseTable):
    """Database row of an edit: operations on a model's tasks, which a job turns into a new version."""

    __tablename__ = "edits"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]  # from 1, in the order of acceptance
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    operations: Mapped[list[JsonObject]] = mapped_column(JSON_COLUMN)
    way: Mapped[str] = mapped_column(String(12))  # see core.contract.edit.Way
    tasks: Mapped[list[int]] = mapped_column(JSON_COLUMN)  # whose data changes
    # head of the lineage that the edit was checked against and starts from
    parent: Mapped[int]
    reason: Mapped[str | None] = mapped_column(Text)
    # null until its version is published
    version: Mapped[int | None]
    journal: Mapped[EditUndoRecord | None] = mapped_column(DocumentColumn(EditUndoRecord))
    # null: it cannot be undone
    undo_until: Mapped[float | None]
    undone_at: Mapped[float | None]
    created_at: Mapped[float]
    __table_args__ = (UniqueConstraint("model_id", "number"),)


class TaskFileBeforeEdit(DatabaseTable):
    """Database row of a former file of an edited task, retained while the edit can be undone."""

    __tablename__ = "edited_parts"
    edit_id: Mapped[str] = mapped_column(ForeignKey("edits.id"), primary_key=True)
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(12), primary_key=True)  # train, held_out or traces
    sha256: Mapped[str] = mapped_column(String(64))
    bytes: Mapped[int]
    until: Mapped[float]  # end of its retention
    __table_args__ = (
        Index("ix_edited_parts_sha256", "sha256"),
        Index("ix_edited_parts_task_id", "task_id"),
        Index("ix_edited_parts_until", "until"),
    )


class ClassAlias(DatabaseTable):
    """Database row of a former class name, which is read as the class that replaced it."""

    __tablename__ = "class_aliases"
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    # null: the class was dropped
    to: Mapped[str | None] = mapped_column(String(100))
    edit: Mapped[int]
    created_at: Mapped[float]
