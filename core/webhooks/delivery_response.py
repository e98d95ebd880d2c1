"""Webhook deliveries as responses show them."""

import json
from typing import Any, cast

from core.contract.responses.webhook import DeliveryDetail, DeliveryOut
from core.database.tables import WebhookDelivery
from core.requests.actor import Actor
from core.requests.timestamps import format_rfc3339


def build_delivery_response(row: WebhookDelivery) -> DeliveryOut:
    """Convert a webhook delivery to a response."""
    return {
        "id": row.id,
        "webhook": row.webhook_id,
        "type": row.type,
        "model": row.model_id,
        "state": cast(Any, row.state),
        "attempts": row.attempts,
        "next_at": format_rfc3339(row.next_at),
        "status": row.status,
        "error": row.error,
        "created_at": format_rfc3339(row.created_at),
        "sent_at": format_rfc3339(row.sent_at),
        "finished_at": format_rfc3339(row.finished_at),
    }


def build_delivery_response_with_payload(actor: Actor, row: WebhookDelivery) -> DeliveryDetail:
    """Convert a webhook delivery with its payload to a response.

    The receiver's response is included for administrators alone, since it may come from an internal
    service.
    """
    receiver_response = row.answer if actor.is_admin else None
    return {
        **build_delivery_response(row),
        "payload": json.loads(row.payload),
        "answer": receiver_response,
    }
