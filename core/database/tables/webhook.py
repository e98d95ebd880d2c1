"""Webhooks, and their deliveries: rows of an outbox, written in the transaction of the change."""

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.database.tables.table import JSON_COLUMN, SERIAL, DatabaseTable, build_partial_index

PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"
"""States of a delivery: waiting to be sent, accepted by its receiver, given up."""


class Webhook(DatabaseTable):
    """Database row of a webhook: a URL that an owner has registered to receive events.

    Its secret is not stored, but derived from a key file, see `core.webhooks.webhook_secret`.
    """

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    url: Mapped[str] = mapped_column(Text)
    # format of payloads, see core.contract.webhook
    format: Mapped[str] = mapped_column(String(10), default="standard", server_default="standard")
    # types of events, see core.contract.webhook
    events: Mapped[list[str]] = mapped_column(JSON_COLUMN)
    # null: all models of the owner
    model_id: Mapped[str | None] = mapped_column(ForeignKey("models.id"))
    # generation of the secret, which rises with each rotation
    generation: Mapped[int] = mapped_column(default=1)
    secret_sha256: Mapped[str] = mapped_column(String(64))  # shows if a key file is the right one
    previous_until: Mapped[float | None]  # time until which the previous secret signs too
    disabled_at: Mapped[float | None]
    disabled_because: Mapped[str | None] = mapped_column(String(300))  # null: disabled by a person
    failing_since: Mapped[float | None]  # time of the first failed attempt since the last success
    # events that found no room: see core.database.deliveries
    dropped: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[float | None]  # time at which the next delivery may be sent; null: none waits
    lease_until: Mapped[float | None]  # end of a worker's lease
    fence: Mapped[int] = mapped_column(default=0)  # rises with each lease
    served_at: Mapped[float | None]  # time at which a worker last took it
    last_s: Mapped[float | None]  # seconds of the last attempt
    created_at: Mapped[float]
    __table_args__ = (build_partial_index("ix_webhooks_due", "due_at", where="due_at IS NOT NULL"),)


class WebhookDelivery(DatabaseTable):
    """Database row of an event to send to a webhook, with the attempts so far.

    `number` rises in the order of commits of changes to the webhook's models. There are no foreign
    keys: checking one locks another row, and these rows are written after all other locks.
    """

    __tablename__ = "deliveries"
    number: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(40), unique=True)  # header webhook-id of every attempt
    webhook_id: Mapped[str] = mapped_column(String(40))
    owner_id: Mapped[str] = mapped_column(String(40))
    model_id: Mapped[str | None] = mapped_column(String(40))
    type: Mapped[str] = mapped_column(String(24))
    # JSON; signed and sent as it is, or in the webhook's format
    payload: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(10), default=PENDING)
    attempts: Mapped[int] = mapped_column(default=0)
    next_at: Mapped[float | None]  # time at which it may be sent; null: finished
    status: Mapped[int | None]  # status of the last response
    error: Mapped[str | None] = mapped_column(Text)  # reason why the last attempt failed
    # first bytes of the last response, for administrators
    answer: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(index=True)
    sent_at: Mapped[float | None]  # time of the last attempt
    finished_at: Mapped[float | None]
    __table_args__ = (
        Index("ix_deliveries_webhook_id_number", "webhook_id", "number"),
        build_partial_index(
            "ix_deliveries_pending", "webhook_id", "number", where="state = 'pending'"
        ),
        build_partial_index("ix_deliveries_owner_pending", "owner_id", where="state = 'pending'"),
        {"sqlite_autoincrement": True},
    )
