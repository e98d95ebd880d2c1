"""Rows of the outbox: which webhook a worker takes, what it sends next, and what is written down of an attempt.

A webhook is served by one worker at a time, under a lease with a fence as jobs have. So no delivery is sent by two at
once, and per webhook one is sent after the other. A worker that dies between the answer and the note of it leaves a
delivery that is sent again, under the same id.
"""

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select
from sqlalchemy.orm import Session, aliased

from core.db.deliveries import WAITING, WAITS
from core.db.session import Database
from core.db.tables import Audit, Delivery, Webhook
from core.db.tables.webhook import DELIVERED, FAILED

LEASE_S = 60.0
"""A worker that has not said for so long that it sends has died: longer than resolving a name and a whole request."""
RETRY_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Between attempts: 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h."""
JITTER = 0.1
"""A pause is longer by up to this share, so that what failed together does not come back together."""
IN_ORDER = 5
"""Attempts of a delivery during which later ones of its model wait for it: about 2½ hours."""
GIVE_UP_S = 5 * 86_400.0
"""A webhook to which every attempt has failed for so long is disabled."""
SLOW_S = 2.0
"""A webhook whose last attempt took longer, or that fails, is served in the places that are for such."""
MOST_OF_OWNER = 4
"""Webhooks of one owner that a worker serves at once."""
_LOOKED_AT = 200
DAY_S = 86_400.0
_DELETED = 1000


@dataclass(frozen=True)
class Lease:
    """A webhook that a worker has taken."""

    webhook_id: str
    owner_id: str
    fence: int
    is_slow: bool


@dataclass(frozen=True)
class Outgoing:
    """What is to be sent next, and with which secrets: those of these generations, the present one first.

    `payload`: JSON, which is sent in `format` (`core.work.chat_messages`).
    """

    number: int
    id: str
    payload: str
    format: str
    url: str
    generations: list[int]
    secret_sha256: str


@dataclass(frozen=True)
class Outcome:
    """What became of an attempt. `status`: None where no answer came; `error`: None: it was taken."""

    status: int | None
    error: str | None
    answer: str | None
    seconds: float


def take(
    db: Database, serving: Collection[Lease], places: int, slow_places: int, lease_s: float = LEASE_S
) -> list[Lease]:
    """Take webhooks with something due, those served longest ago first; at most `places`, slow ones `slow_places`.

    Args:
        serving: what this worker serves already.
    """
    with db.read() as session:
        now = db.now(session)
        found = _candidates(session, now, places, slow_places, Counter(one.owner_id for one in serving))
    if not found:
        return []
    taken = []
    with db.write() as session:
        now = db.now(session)
        query = select(Webhook).where(Webhook.id.in_(found), *_free(now)).order_by(Webhook.id)
        # Another worker that is just taking one leaves the others.
        for hook in session.scalars(query.with_for_update(skip_locked=True, key_share=True)):
            hook.fence += 1
            hook.lease_until, hook.served_at = now + lease_s, now
            taken.append(Lease(hook.id, hook.owner_id, hook.fence, _is_slow(hook)))
    return taken


def next_of(db: Database, lease: Lease, lease_s: float = LEASE_S) -> Outgoing | None:
    """What is to be sent to a webhook now, its lease renewed; None: nothing, and the webhook is free again."""
    with db.write() as session:
        hook, now = _held(session, lease), db.now(session)
        if hook is None:
            return None
        row = None if hook.disabled_at is not None else _next(session, hook, now)
        if row is None:
            _free_again(session, hook, now)
            return None
        hook.lease_until = now + lease_s
        both = hook.previous_until is not None and now < hook.previous_until
        generations = [hook.generation, hook.generation - 1] if both else [hook.generation]
        return Outgoing(
            row.number, row.id, row.payload, hook.format, hook.url, generations, hook.secret_sha256
        )


def leave(db: Database, lease: Lease) -> None:
    """Give a webhook back; what is still due is any worker's."""
    with db.write() as session:
        hook = _held(session, lease)
        if hook is not None:
            _free_again(session, hook, db.now(session))


def note(db: Database, lease: Lease, sent: Outgoing, outcome: Outcome) -> None:
    """Write down what became of an attempt; of a lease that is lost nothing, another worker sends again."""
    with db.write() as session:
        hook, now = _held(session, lease), db.now(session)
        row = session.get(Delivery, sent.number, with_for_update=True)
        if hook is None or row is None:
            return
        row.attempts += 1
        row.sent_at, row.status, row.error, row.answer = now, outcome.status, outcome.error, outcome.answer
        hook.last_s = outcome.seconds
        if outcome.error is None:
            _over(row, DELIVERED, now)
            hook.failing_since = None
            return
        hook.failing_since = hook.failing_since or now
        if row.attempts > len(RETRY_S):
            _over(row, FAILED, now)
        else:
            row.next_at = now + RETRY_S[row.attempts - 1] * (1 + JITTER * random.random())
        if outcome.status == 410:
            _over(row, FAILED, now)
            _disable(session, hook, "The receiver answered 410: it wants nothing any more.", now)
        elif now - hook.failing_since >= GIVE_UP_S:
            _disable(session, hook, "Every attempt of five days has failed.", now)


def forget_old(db: Database, days: float) -> None:
    """Remove deliveries that are over for so many days, and what waits for so long at a webhook that is disabled."""
    with db.read() as session:
        before = db.now(session) - days * DAY_S
    disabled = select(Webhook.id).where(Webhook.id == Delivery.webhook_id, Webhook.disabled_at < before)
    over = or_(Delivery.finished_at < before, and_(WAITS, exists(disabled)))
    query = select(Delivery.number).where(Delivery.created_at < before, over).limit(_DELETED)
    while True:
        with db.write() as session:
            numbers = list(session.scalars(query))
            session.execute(delete(Delivery).where(Delivery.number.in_(numbers)))
        if len(numbers) < _DELETED:
            return


def _candidates(
    session: Session, now: float, places: int, slow_places: int, served: Counter[str]
) -> list[str]:
    """Webhooks to take: of each owner few, whoever was served longest ago first."""
    found: list[str] = []
    slow = or_(Webhook.failing_since.is_not(None), Webhook.last_s > SLOW_S)
    quick = and_(Webhook.failing_since.is_(None), or_(Webhook.last_s.is_(None), Webhook.last_s <= SLOW_S))
    for kind, most in ((quick, places), (slow, min(slow_places, places))):
        query = select(Webhook.id, Webhook.owner_id).where(*_free(now), kind)
        query = query.order_by(Webhook.served_at.is_not(None), Webhook.served_at, Webhook.id)
        room = most
        for webhook_id, owner in session.execute(query.limit(_LOOKED_AT)):
            if room <= 0 or len(found) >= places:
                break
            if served[owner] < MOST_OF_OWNER:
                served[owner] += 1
                room -= 1
                found.append(webhook_id)
    return found


def _free(now: float) -> tuple[ColumnElement[bool], ...]:
    return (
        Webhook.disabled_at.is_(None),
        Webhook.due_at.is_not(None),
        Webhook.due_at <= now,
        or_(Webhook.lease_until.is_(None), Webhook.lease_until <= now),
    )


def _is_slow(hook: Webhook) -> bool:
    return hook.failing_since is not None or (hook.last_s or 0.0) > SLOW_S


def _held(session: Session, lease: Lease) -> Webhook | None:
    """The webhook's row, locked, if it is still this worker's."""
    query = select(Webhook).where(Webhook.id == lease.webhook_id, Webhook.fence == lease.fence)
    return session.scalars(query.with_for_update(key_share=True)).one_or_none()


def _next(session: Session, hook: Webhook, now: float) -> Delivery | None:
    """The oldest delivery that is due and waits for no earlier one of its model."""
    query = select(Delivery).where(Delivery.webhook_id == hook.id, WAITS, Delivery.next_at <= now, _in_turn())
    return session.scalars(query.order_by(Delivery.number).limit(1)).one_or_none()


def _in_turn() -> ColumnElement[bool]:
    earlier = aliased(Delivery)
    waits = and_(
        earlier.webhook_id == Delivery.webhook_id,
        earlier.model_id == Delivery.model_id,
        earlier.state == WAITING,
        earlier.number < Delivery.number,
        earlier.attempts < IN_ORDER,
    )
    return ~exists(select(earlier.number).where(waits))


def _free_again(session: Session, hook: Webhook, now: float) -> None:
    """End a lease; the webhook is due when the first delivery is that waits for no other."""
    session.flush()
    query = select(Delivery.next_at).where(Delivery.webhook_id == hook.id, WAITS, _in_turn())
    hook.due_at = session.scalar(query.order_by(Delivery.next_at).limit(1))
    hook.lease_until = None
    hook.served_at = now


def _over(row: Delivery, state: str, now: float) -> None:
    row.state, row.next_at, row.finished_at = state, None, now


def _disable(session: Session, hook: Webhook, why: str, now: float) -> None:
    hook.disabled_at, hook.disabled_because, hook.due_at = now, why, None
    about = {"object": hook.id, "model_id": hook.model_id, "data": {"reason": why}}
    session.add(Audit(at=now, owner_id=hook.owner_id, actor=None, action="webhook.disable", **about))
