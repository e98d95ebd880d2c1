"""Webhooks, and what they are still to be told: rows of an outbox, written in the transaction of the change."""

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.db.tables.table import JSON_COLUMN, SERIAL, Table, partial_index

PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"
"""States of a delivery: still to be sent, taken by its receiver, given up."""


class Webhook(Table):
    """A receiver that an owner has named. Its secret is nowhere: it is made of a key file, see
    `core.webhook_secret`."""

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    url: Mapped[str] = mapped_column(Text)
    format: Mapped[str] = mapped_column(
        String(10), default="standard"
    )  # of what is sent, see core.protocol.webhook
    events: Mapped[list[str]] = mapped_column(JSON_COLUMN)  # types, see core.protocol.webhook
    model_id: Mapped[str | None] = mapped_column(ForeignKey("models.id"))  # null: all of the owner's
    generation: Mapped[int] = mapped_column(default=1)  # of the secret: rises with each rotation
    secret_sha256: Mapped[str] = mapped_column(String(64))  # tells whether a key file is the right one
    previous_until: Mapped[float | None]  # until then the secret before it signs too
    disabled_at: Mapped[float | None]
    disabled_because: Mapped[str | None] = mapped_column(String(300))  # null: a person did it
    failing_since: Mapped[float | None]  # of the first attempt that failed since one succeeded
    dropped: Mapped[int] = mapped_column(default=0)  # events that found no room: see core.db.deliveries
    due_at: Mapped[float | None]  # when the next delivery may be sent; null: none waits
    lease_until: Mapped[float | None]  # a worker sends to it until then
    fence: Mapped[int] = mapped_column(default=0)  # rises with each lease
    served_at: Mapped[float | None]  # when a worker last took it
    last_s: Mapped[float | None]  # seconds that the last attempt took
    created_at: Mapped[float]
    __table_args__ = (partial_index("ix_webhooks_due", "due_at", where="due_at IS NOT NULL"),)


class Delivery(Table):
    """One event for one webhook. `number` rises in the order in which the changes of a webhook's models were committed.

    Without foreign keys: to check one takes a lock on another row, and these rows are written behind all other locks.
    """

    __tablename__ = "deliveries"
    number: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(40), unique=True)  # the header webhook-id, of every attempt
    webhook_id: Mapped[str] = mapped_column(String(40))
    owner_id: Mapped[str] = mapped_column(String(40))
    model_id: Mapped[str | None] = mapped_column(String(40))
    type: Mapped[str] = mapped_column(String(24))
    payload: Mapped[str] = mapped_column(Text)  # JSON; sent and signed as it is, or in the webhook's format
    state: Mapped[str] = mapped_column(String(10), default=PENDING)
    attempts: Mapped[int] = mapped_column(default=0)
    next_at: Mapped[float | None]  # when it may be sent; null: it is over
    status: Mapped[int | None]  # of the last answer
    error: Mapped[str | None] = mapped_column(Text)  # why the last attempt failed
    answer: Mapped[str | None] = mapped_column(Text)  # the last answer's first bytes, for administrators
    created_at: Mapped[float] = mapped_column(index=True)
    sent_at: Mapped[float | None]  # of the last attempt
    finished_at: Mapped[float | None]
    __table_args__ = (
        Index("ix_deliveries_webhook_id_number", "webhook_id", "number"),
        partial_index("ix_deliveries_pending", "webhook_id", "number", where="state = 'pending'"),
        partial_index("ix_deliveries_owner_pending", "owner_id", where="state = 'pending'"),
        {"sqlite_autoincrement": True},
    )
