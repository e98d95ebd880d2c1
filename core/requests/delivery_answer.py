"""A delivery of a webhook as answers show it."""

import json
from typing import Any, cast

from core.db.tables import Delivery
from core.protocol.answers.webhook import DeliveryDetail, DeliveryOut
from core.requests.actor import Actor
from core.requests.times import rfc3339


def shown(row: Delivery) -> DeliveryOut:
    """A delivery as answers show it."""
    return {
        "id": row.id,
        "webhook": row.webhook_id,
        "type": row.type,
        "model": row.model_id,
        "state": cast(Any, row.state),
        "attempts": row.attempts,
        "next_at": rfc3339(row.next_at),
        "status": row.status,
        "error": row.error,
        "created_at": rfc3339(row.created_at),
        "sent_at": rfc3339(row.sent_at),
        "finished_at": rfc3339(row.finished_at),
    }


def detail(actor: Actor, row: Delivery) -> DeliveryDetail:
    """The same with what is sent; what a receiver said is for administrators alone, it may come from inside."""
    answer = row.answer if actor.is_admin else None
    return {**shown(row), "payload": json.loads(row.payload), "answer": answer}
