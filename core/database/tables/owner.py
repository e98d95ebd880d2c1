"""Owners, their keys and sessions, and records of their requests.

A session belongs to a person who logged in with a key. Records are the responses for repeated
requests, and the audit trail.
"""

from typing import Any, ClassVar

from sqlalchemy import ForeignKey, Index, String, false
from sqlalchemy.orm import Mapped, mapped_column

from core.contract.responses.audit import AuditData
from core.contract.usage import StoredOwnerUsage
from core.database.tables.table import JSON_COLUMN, SERIAL, DatabaseTable


class Owner(DatabaseTable):
    """Database row of an owner: a tenant, who sees only its own objects."""

    __tablename__ = "owners"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), unique=True)
    bytes: Mapped[int | None]  # stored bytes, see core.usage.stored_bytes
    bytes_at: Mapped[float | None]  # time of that measurement
    # rows and bytes, see core.usage.usage_sums
    usage: Mapped[StoredOwnerUsage | None] = mapped_column(JSON_COLUMN)
    usage_at: Mapped[float | None]  # time at which a worker last began to measure it
    # time at which a worker last claimed one of the owner's jobs, see core.scheduling.turns
    claimed_at: Mapped[float | None]
    # True if that job was claimed before an older one
    overtook: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[float]


class AccessKey(DatabaseTable):
    """Database row of an access key; only the SHA-256 digest of its text is stored."""

    __tablename__ = "keys"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    prefix: Mapped[str] = mapped_column(String(16), unique=True)  # public part of the text
    hash: Mapped[str] = mapped_column(String(64))
    scope: Mapped[str] = mapped_column(String(8))  # scrape, predict, read, write, admin
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    created_at: Mapped[float]


class PredictKeyBindingRow(DatabaseTable):
    """Database row of the model alias, limits and counters that an access key of scope predict is
    bound to.
    """

    __tablename__ = "predict_keys"
    key_id: Mapped[str] = mapped_column(ForeignKey("keys.id"), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), index=True)
    alias: Mapped[str] = mapped_column(String(63))
    requests_per_s: Mapped[float]
    images_per_day: Mapped[int]
    # day of its last request, counted from 1970-01-01 (UTC)
    day: Mapped[int] = mapped_column(default=0)
    images: Mapped[int] = mapped_column(default=0)  # number of images sent on that day
    # time at which its bucket is full again, see core.keys.predict_keys
    free_at: Mapped[float] = mapped_column(default=0.0)


class UserSession(DatabaseTable):
    """Database row of a person's session on the web pages; only the digest of its token is stored."""

    __tablename__ = "sessions"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("keys.id"), index=True)
    created_at: Mapped[float]
    seen_at: Mapped[float]  # time of its last request, updated every half minute
    expires_at: Mapped[float] = mapped_column(index=True)


class IdempotencyRecord(DatabaseTable):
    """Database row of the response to a request with an Idempotency-Key.

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


class AuditEntry(DatabaseTable):
    """Database row of the audit trail: a change, and the access key that made it."""

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
