"""Deliveries of a webhook: list them, show one, and send one again."""

from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.responses.webhook import DeliveryDetail, DeliveryPage
from core.database.session import Database
from core.database.tables import Webhook, WebhookDelivery
from core.database.tables.webhook import PENDING
from core.errors import NotFound
from core.requests.actor import Actor
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, read_query_page
from core.webhooks import webhooks
from core.webhooks.delivery_response import (
    build_delivery_response,
    build_delivery_response_with_payload,
)


def list_deliveries(
    db: Database,
    actor: Actor,
    webhook: str,
    *,
    state: Literal["pending", "delivered", "failed"] | None,
    limit: int,
    cursor: str | None,
) -> DeliveryPage:
    """Return a page of a webhook's deliveries, newest first.

    Raises:
        NotFound: the caller sees no such webhook.
    """
    with db.read() as session:
        row = webhooks.find_webhook(session, actor, webhook)
        query = select(WebhookDelivery).where(WebhookDelivery.webhook_id == row.id)
        if state is not None:
            query = query.where(WebhookDelivery.state == state)
        deliveries: ListPage[WebhookDelivery] = read_query_page(
            session, query, WebhookDelivery.number, limit, cursor, descending=True
        )
        return {
            "items": [build_delivery_response(one) for one in deliveries.rows],
            "next_cursor": deliveries.next_cursor,
        }


def read_delivery(db: Database, actor: Actor, webhook: str, delivery: str) -> DeliveryDetail:
    """Read one webhook delivery with its payload.

    Raises:
        NotFound: the caller sees no such webhook or delivery.
    """
    with db.read() as session:
        row = webhooks.find_webhook(session, actor, webhook)
        return build_delivery_response_with_payload(actor, _find_delivery(session, row, delivery))


def requeue_delivery(db: Database, actor: Actor, webhook: str, delivery: str) -> DeliveryDetail:
    """Queue a webhook delivery again, due at once and with attempts counted from 0.

    Its id stays, so that a receiver recognises it.

    Raises:
        NotFound: the caller sees no such webhook or delivery.
        WrongState: the webhook is disabled.
        TooManyRequests: too many deliveries of its owner wait.
    """
    with db.write() as session:
        hook, now = webhooks.find_webhook(session, actor, webhook, lock=True), db.now(session)
        webhooks.require_webhook_enabled(hook)
        row = _find_delivery(session, hook, delivery)
        # One that waits is counted among the waiting ones already.
        if row.state != PENDING:
            webhooks.require_room_for_delivery(session, hook)
        row.state, row.attempts, row.next_at, row.finished_at = PENDING, 0, now, None
        # Workers look for webhooks by this time, not for single deliveries.
        hook.due_at = now
        session.flush()
        record_audit_entry(
            session, actor, AuditedChange("webhook.redeliver", row.id, {}, model=hook.model_id), now
        )
        return build_delivery_response_with_payload(actor, row)


def _find_delivery(session: Session, hook: Webhook, delivery: str) -> WebhookDelivery:
    query = select(WebhookDelivery).where(
        WebhookDelivery.id == delivery, WebhookDelivery.webhook_id == hook.id
    )
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFound(
            f"{hook.id} has no delivery {delivery[:60]!r}: it never had, or it is kept no longer."
        )
    return row
