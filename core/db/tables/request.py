"""Records of requests: responses for repeated requests, and the audit trail."""

from typing import Any, ClassVar

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from core.db.tables.table import JSON_COLUMN, SERIAL, Table
from core.protocol.answers.audit import AuditData


class Idempotency(Table):
    """The response to a request with an Idempotency-Key.

    `status` is null while the request is under way.
    """

    __tablename__ = "idempotency"
    KEPT_S: ClassVar[float] = 24 * 3600.0
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), primary_key=True)
    route: Mapped[str] = mapped_column(String(200), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    content_sha256: Mapped[str | None] = mapped_column(String(64))
    status: Mapped[int | None]
    headers: Mapped[dict[str, str]] = mapped_column(JSON_COLUMN)
    body: Mapped[Any] = mapped_column(JSON_COLUMN, nullable=True)  # a response of any route
    created_at: Mapped[float] = mapped_column(index=True)


class Audit(Table):
    """A change, and the key that made it."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    at: Mapped[float]
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    actor: Mapped[str | None] = mapped_column(String(40))  # id of a key; null: a worker
    action: Mapped[str] = mapped_column(String(40))  # such as model.create, alias.set
    object: Mapped[str] = mapped_column(String(120))
    data: Mapped[AuditData] = mapped_column(JSON_COLUMN)
    # model concerned, which may be deleted
    model_id: Mapped[str | None] = mapped_column(String(40))
    __table_args__ = (
        Index("ix_audit_model_id_id", "model_id", "id"),
        Index("ix_audit_action_id", "action", "id"),
        Index("ix_audit_at_id", "at", "id"),
        # Otherwise SQLite could give an id again, and cursors would skip the new row.
        {"sqlite_autoincrement": True},
    )
