"""Rows of the outbox: lease a webhook, choose its next delivery, record the outcome.

A webhook is served by one worker at a time, under a lease with a fence as for jobs. A delivery is
therefore never sent by two workers at once, and a webhook's deliveries are sent one after another.
If a worker dies between the response and its record, the delivery is sent again under the same id.
"""

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, bindparam, delete, exists, or_, select
from sqlalchemy.orm import Session, aliased

from core.database.deliveries import WAITING, WAITS
from core.database.session import Database
from core.database.tables import AuditEntry, Webhook, WebhookDelivery
from core.database.tables.webhook import DELIVERED, FAILED

LEASE_S = 60.0
"""Seconds without renewal after which a worker counts as dead.

This is longer than resolving a name and a whole request.
"""
RETRY_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds between attempts: 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h."""
JITTER = 0.1
"""Maximum share by which a pause is lengthened at random, to spread simultaneous retries."""
IN_ORDER = 5
"""Number of attempts during which later deliveries of the same model wait, about 2½ hours in all.
"""
GIVE_UP_S = 5 * 86_400.0
"""Seconds of nothing but failed attempts after which a webhook is disabled."""
SLOW_S = 2.0
"""Seconds of the last attempt above which a webhook counts as slow."""
MOST_OF_OWNER = 4
"""Maximum number of webhooks of one owner that a worker serves at once."""
# More than there are places, since of an owner's many webhooks only a few are taken.
_LOOKED_AT = 200
DAY_S = 86_400.0
_DELETED = 1000
# Condition that a webhook is enabled, due and not leased at the time `now`.
_IS_DUE = and_(
    Webhook.disabled_at.is_(None),
    Webhook.due_at.is_not(None),
    Webhook.due_at <= bindparam("now"),
    or_(Webhook.lease_until.is_(None), Webhook.lease_until <= bindparam("now")),
)
# Built once, since every worker runs these each second, and building takes longer than running.
_DUE = (
    select(Webhook.id, Webhook.owner_id)
    .where(_IS_DUE)
    # Never served ones first, whatever the order of NULL in the database.
    .order_by(Webhook.served_at.is_not(None), Webhook.served_at, Webhook.id)
    .limit(_LOOKED_AT)
)
_QUICK_DUE = _DUE.where(
    Webhook.failing_since.is_(None), or_(Webhook.last_s.is_(None), Webhook.last_s <= SLOW_S)
)
_SLOW_DUE = _DUE.where(or_(Webhook.failing_since.is_not(None), Webhook.last_s > SLOW_S))


@dataclass(frozen=True)
class LeasedWebhook:
    """A webhook that a worker has leased to deliver its events."""

    webhook_id: str
    owner_id: str
    fence: int
    is_slow: bool


@dataclass(frozen=True)
class OutgoingDelivery:
    """The next delivery to send to a webhook.

    Attributes:
        payload: JSON, which is sent in `format` (`core.webhooks.chat_messages`).
        generations: generations of the secrets to sign with, the present one first.
        secret_sha256: digest of the present secret.
    """

    number: int
    id: str
    payload: str
    format: str
    url: str
    generations: list[int]
    secret_sha256: str


@dataclass(frozen=True)
class DeliveryAttemptOutcome:
    """Outcome of an attempt to deliver a webhook event.

    Attributes:
        status: HTTP status; None without a response.
        error: reason of a failure; None if the delivery was accepted.
        response_body: beginning of the response's body.
        seconds: duration of the attempt.
    """

    status: int | None
    error: str | None
    response_body: str | None
    seconds: float


def lease_webhooks(
    db: Database,
    serving: Collection[LeasedWebhook],
    places: int,
    slow_places: int,
    lease_s: float = LEASE_S,
) -> list[LeasedWebhook]:
    """Lease webhooks with due deliveries to this worker, those served longest ago first.

    Args:
        serving: leases that this worker holds already.
        places: maximum number of webhooks to take.
        slow_places: maximum number of slow webhooks among them.
        lease_s: seconds of the leases.
    """
    # Most looks find nothing due, and need not queue up with the writers.
    with db.read() as session:
        now = db.now(session)
        candidates = _find_due_webhooks(
            session, now, places, slow_places, Counter(one.owner_id for one in serving)
        )
    if not candidates:
        return []
    leases = []
    with db.write() as session:
        now = db.now(session)
        # Checked again under the lock, since another worker may have served them meanwhile.
        query = (
            select(Webhook)
            .where(Webhook.id.in_(candidates), _IS_DUE)
            .order_by(Webhook.id)
            # Skip a webhook that another worker is just taking, and take the others.
            .with_for_update(skip_locked=True, key_share=True)
        )
        for hook in session.scalars(query, {"now": now}):
            # A worker that hangs for longer than its lease must not record its outcome any more.
            hook.fence += 1
            hook.lease_until, hook.served_at = now + lease_s, now
            leases.append(LeasedWebhook(hook.id, hook.owner_id, hook.fence, _is_slow_webhook(hook)))
    return leases


def find_next_delivery_or_release_webhook(
    db: Database, lease: LeasedWebhook, lease_s: float = LEASE_S
) -> OutgoingDelivery | None:
    """Find the delivery to send to a leased webhook now, and renew the lease.

    If nothing is due or the lease is lost, return None and release the webhook.
    """
    with db.write() as session:
        hook, now = _lock_leased_webhook(session, lease), db.now(session)
        if hook is None:
            return None
        row = None if hook.disabled_at is not None else _find_next_delivery(session, hook, now)
        if row is None:
            _end_webhook_lease(session, hook, now)
            return None
        hook.lease_until = now + lease_s
        # For a time after a rotation, the receiver may still know only the old secret.
        both = hook.previous_until is not None and now < hook.previous_until
        generations = [hook.generation, hook.generation - 1] if both else [hook.generation]
        return OutgoingDelivery(
            row.number, row.id, row.payload, hook.format, hook.url, generations, hook.secret_sha256
        )


def release_webhook_lease(db: Database, lease: LeasedWebhook) -> None:
    """Release a leased webhook, so that any worker may send its remaining deliveries."""
    with db.write() as session:
        hook = _lock_leased_webhook(session, lease)
        if hook is not None:
            _end_webhook_lease(session, hook, db.now(session))


def record_delivery_outcome(
    db: Database, lease: LeasedWebhook, delivery: OutgoingDelivery, outcome: DeliveryAttemptOutcome
) -> None:
    """Record the outcome of a delivery attempt: end it, plan the next one, or disable the webhook.

    It has no effect if the lease is lost, since another worker sends again.
    """
    with db.write() as session:
        hook, now = _lock_leased_webhook(session, lease), db.now(session)
        row = session.get(WebhookDelivery, delivery.number, with_for_update=True)
        if hook is None or row is None:
            return
        row.attempts += 1
        row.sent_at, row.status, row.error, row.answer = (
            now,
            outcome.status,
            outcome.error,
            outcome.response_body,
        )
        hook.last_s = outcome.seconds
        if outcome.error is None:
            _finish_delivery(row, DELIVERED, now)
            hook.failing_since = None
            return
        hook.failing_since = hook.failing_since or now
        # There is one attempt more than pauses, since the first one has none before it.
        if row.attempts > len(RETRY_S):
            _finish_delivery(row, FAILED, now)
        else:
            row.next_at = now + RETRY_S[row.attempts - 1] * (1 + JITTER * random.random())
        # 410 Gone is how a receiver asks for no more deliveries.
        if outcome.status == 410:
            _finish_delivery(row, FAILED, now)
            _disable_webhook(
                session, hook, "The receiver answered 410: it wants nothing any more.", now
            )
        elif now - hook.failing_since >= GIVE_UP_S:
            _disable_webhook(session, hook, "Every attempt of five days has failed.", now)


def remove_old_webhook_deliveries(db: Database, days: float) -> None:
    """Remove webhook deliveries finished `days` days ago, and old ones of disabled webhooks."""
    with db.read() as session:
        before = db.now(session) - days * DAY_S
    disabled = select(Webhook.id).where(
        Webhook.id == WebhookDelivery.webhook_id, Webhook.disabled_at < before
    )
    over = or_(WebhookDelivery.finished_at < before, and_(WAITS, exists(disabled)))
    query = (
        select(WebhookDelivery.number)
        .where(WebhookDelivery.created_at < before, over)
        .limit(_DELETED)
    )
    while True:
        with db.write() as session:
            numbers = list(session.scalars(query))
            session.execute(delete(WebhookDelivery).where(WebhookDelivery.number.in_(numbers)))
        # Few rows in each transaction, since other writers must get in between.
        if len(numbers) < _DELETED:
            return


def _find_due_webhooks(
    session: Session, now: float, places: int, slow_places: int, served: Counter[str]
) -> list[str]:
    """Find the ids of webhooks to lease: few of each owner, those served longest ago first."""
    webhook_ids: list[str] = []
    # Quick ones first: the slow ones share what is left, up to their own limit.
    for query, limit in ((_QUICK_DUE, places), (_SLOW_DUE, min(slow_places, places))):
        room = limit
        for webhook_id, owner in session.execute(query, {"now": now}):
            if room <= 0 or len(webhook_ids) >= places:
                break
            if served[owner] < MOST_OF_OWNER:
                served[owner] += 1
                room -= 1
                webhook_ids.append(webhook_id)
    return webhook_ids


def _is_slow_webhook(hook: Webhook) -> bool:
    return hook.failing_since is not None or (hook.last_s or 0.0) > SLOW_S


def _lock_leased_webhook(session: Session, lease: LeasedWebhook) -> Webhook | None:
    """Lock the webhook's row if this worker still has its lease."""
    query = select(Webhook).where(Webhook.id == lease.webhook_id, Webhook.fence == lease.fence)
    return session.scalars(query.with_for_update(key_share=True)).one_or_none()


def _find_next_delivery(session: Session, hook: Webhook, now: float) -> WebhookDelivery | None:
    """Find the oldest due delivery that does not wait for an earlier one of its model."""
    query = select(WebhookDelivery).where(
        WebhookDelivery.webhook_id == hook.id,
        WAITS,
        WebhookDelivery.next_at <= now,
        _build_first_delivery_of_model_condition(),
    )
    return session.scalars(query.order_by(WebhookDelivery.number).limit(1)).one_or_none()


def _build_first_delivery_of_model_condition() -> ColumnElement[bool]:
    """Build the SQL condition that no earlier delivery of the same model must be sent first."""
    earlier = aliased(WebhookDelivery)
    waits = and_(
        earlier.webhook_id == WebhookDelivery.webhook_id,
        earlier.model_id == WebhookDelivery.model_id,
        earlier.state == WAITING,
        earlier.number < WebhookDelivery.number,
        earlier.attempts < IN_ORDER,
    )
    return ~exists(select(earlier.number).where(waits))


def _end_webhook_lease(session: Session, hook: Webhook, now: float) -> None:
    """End a worker's lease of a webhook.

    The webhook is due again with its first delivery that does not wait for another.
    """
    # The query must see the outcome that was just recorded.
    session.flush()
    query = select(WebhookDelivery.next_at).where(
        WebhookDelivery.webhook_id == hook.id, WAITS, _build_first_delivery_of_model_condition()
    )
    hook.due_at = session.scalar(query.order_by(WebhookDelivery.next_at).limit(1))
    hook.lease_until = None
    hook.served_at = now


def _finish_delivery(row: WebhookDelivery, state: str, now: float) -> None:
    """Mark a webhook delivery as finished, in a final state."""
    row.state, row.next_at, row.finished_at = state, None, now


def _disable_webhook(session: Session, hook: Webhook, why: str, now: float) -> None:
    """Disable a failing webhook, and record it in the audit trail."""
    hook.disabled_at, hook.disabled_because, hook.due_at = now, why, None
    about = {"object": hook.id, "model_id": hook.model_id, "data": {"reason": why}}
    session.add(
        AuditEntry(at=now, owner_id=hook.owner_id, actor=None, action="webhook.disable", **about)
    )
