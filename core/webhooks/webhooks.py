"""Webhooks: receivers that an owner wants notified of events of the owner's models.

An address is checked here, so that a person learns at once of a problem, and again before each
delivery.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from core.contract.responses.webhook import (
    DeliveryDetail,
    LastDelivery,
    NewWebhook,
    WebhookChange,
    WebhookOut,
    WebhookPage,
)
from core.contract.webhook import EVENTS, TEST, WebhookFormat
from core.database import deliveries
from core.database.session import Database
from core.database.tables import Model, Owner, Webhook, WebhookDelivery
from core.errors import Invalid, NotFound, TooManyRequests, WrongState
from core.ids import new_id
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, read_query_page
from core.requests.timestamps import format_rfc3339
from core.settings import Settings
from core.webhooks import webhook_secret
from core.webhooks.delivery_response import build_delivery_response_with_payload
from perennial.public_address import (
    AddressRefused,
    HttpRequestTarget,
    parse_ip_networks,
    parse_url_target,
    resolve_addresses_and_require_allowed,
)

BOTH_S = 86_400.0
"""Seconds after a rotation during which the previous secret signs too."""
_LISTED = 20


@dataclass(frozen=True)
class RequestedWebhook:
    """A webhook that a user asks to create.

    Attributes:
        events: some of `core.contract.webhook.EVENTS`.
        model: id or name of the only model it is notified of; None for all models of the caller's
            owner.
        format: payloads as they are, or messages for Slack or Teams.
    """

    url: str
    events: Sequence[str]
    model: str | None = None
    format: WebhookFormat = "standard"


def create_webhook(
    db: Database, settings: Settings, actor: Actor, requested: RequestedWebhook
) -> NewWebhook:
    """Create a webhook; the response has its `secret`, which is never shown again.

    Raises:
        Invalid: the address is not allowed, or an event is unknown.
        NotFound: the caller sees no such model.
        TooManyRequests: the owner has as many webhooks as allowed.
        WebhooksNotSetUp: the service has no key for secrets.
    """
    # Before the transaction, since resolving a name may take long.
    key, target = (
        webhook_secret.load_or_create_webhook_key(settings),
        _check_webhook_url(settings, requested.url),
    )
    with db.write() as session:
        now, row_id = db.now(session), new_id("whk")
        name = requested.model
        model_row = None if name is None else find_model(session, actor, name)
        secret = webhook_secret.derive_webhook_secret(key, row_id, 1)
        row = Webhook(
            id=row_id,
            owner_id=actor.owner_id if model_row is None else model_row.owner_id,
            url=requested.url,
            format=requested.format,
            events=_check_and_order_event_types(requested.events),
            model_id=None if model_row is None else model_row.id,
            generation=1,
            secret_sha256=webhook_secret.hash_webhook_secret(secret),
            dropped=0,
            fence=0,
            created_at=now,
        )
        session.add(row)
        session.flush()
        # The host alone, since the path of an address, as of Slack, may hold a secret.
        data: Any = {"host": target.host, "events": row.events}
        record_audit_entry(
            session, actor, AuditedChange("webhook.create", row.id, data, model=row.model_id), now
        )
        _require_webhook_limit_kept(session, row, settings.max_webhooks)
        return {**build_webhook_responses(session, [row])[0], "secret": secret}


def list_webhooks(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> WebhookPage:
    """Return a page of the webhooks that the caller sees."""
    with db.read() as session:
        query = select(Webhook).where(actor.build_visible_condition(Webhook.owner_id))
        rows: ListPage[Webhook] = read_query_page(session, query, Webhook.id, limit, cursor)
        return {
            "items": build_webhook_responses(session, rows.rows),
            "next_cursor": rows.next_cursor,
        }


def read_webhook(db: Database, actor: Actor, webhook: str) -> WebhookOut:
    """Return one webhook as a response.

    Raises:
        NotFound: the caller sees no such webhook.
    """
    with db.read() as session:
        return build_webhook_responses(session, [find_webhook(session, actor, webhook)])[0]


def change_webhook(
    db: Database, settings: Settings, actor: Actor, webhook: str, patch: WebhookChange
) -> WebhookOut:
    """Change a webhook's `url`, `format`, `events`, `model` (null for all models) or `enabled`.

    Waiting deliveries go to the new address in the new format.

    Raises:
        NotFound: the caller sees no such webhook or model.
        Invalid: see `create_webhook`; or the model belongs to another owner.
    """
    if (url := patch.get("url")) is not None:
        with db.read() as session:
            # only a caller who sees the webhook may cause a DNS look-up
            find_webhook(session, actor, webhook)
        _check_webhook_url(settings, url)
    with db.write() as session:
        row, now = find_webhook(session, actor, webhook, lock=True), db.now(session)
        row.url = url or row.url
        row.format = patch.get("format") or row.format
        row.events = (
            row.events
            if (events := patch.get("events")) is None
            else _check_and_order_event_types(events)
        )
        if "model" in patch:
            row.model_id = _check_and_resolve_webhook_model(session, actor, row, patch["model"])
        if (enabled := patch.get("enabled")) is not None:
            _set_webhook_enabled(session, row, enabled, now)
        session.flush()
        changed = sorted(
            name for name, value in patch.items() if name != "enabled" and value is not None
        )
        _record_webhook_change_in_audit(session, actor, row, patch, changed, now)
        return build_webhook_responses(session, [row])[0]


def remove_webhook(db: Database, actor: Actor, webhook: str) -> None:
    """Delete a webhook with all its deliveries.

    Raises:
        NotFound: the caller sees no such webhook.
    """
    with db.write() as session:
        row, now = find_webhook(session, actor, webhook, lock=True), db.now(session)
        # Deliveries have no foreign key, so nothing else would remove them.
        session.execute(delete(WebhookDelivery).where(WebhookDelivery.webhook_id == row.id))
        session.delete(row)
        host = parse_url_target(row.url).host
        record_audit_entry(
            session,
            actor,
            AuditedChange("webhook.delete", row.id, {"host": host}, model=row.model_id),
            now,
        )


def rotate_secret(db: Database, settings: Settings, actor: Actor, webhook: str) -> NewWebhook:
    """Give a webhook a new secret, shown only now.

    Deliveries are signed with both secrets for a day.

    Raises:
        NotFound: the caller sees no such webhook.
        WebhooksNotSetUp: the service has no key for secrets.
    """
    key = webhook_secret.load_or_create_webhook_key(settings)
    with db.write() as session:
        row, now = find_webhook(session, actor, webhook, lock=True), db.now(session)
        row.generation += 1
        secret = webhook_secret.derive_webhook_secret(key, row.id, row.generation)
        row.secret_sha256, row.previous_until = (
            webhook_secret.hash_webhook_secret(secret),
            now + BOTH_S,
        )
        record_audit_entry(
            session, actor, AuditedChange("webhook.rotate", row.id, {}, model=row.model_id), now
        )
        return {**build_webhook_responses(session, [row])[0], "secret": secret}


def queue_test_delivery(db: Database, actor: Actor, webhook: str) -> DeliveryDetail:
    """Send an event of type `webhook.test`; while one is waiting, return that one.

    Raises:
        NotFound: the caller sees no such webhook.
        WrongState: it is disabled.
        TooManyRequests: too many deliveries of its owner wait.
    """
    with db.write() as session:
        row, now = find_webhook(session, actor, webhook, lock=True), db.now(session)
        require_webhook_enabled(row)
        mine = (
            WebhookDelivery.webhook_id == row.id,
            deliveries.WAITS,
            WebhookDelivery.type == TEST,
        )
        waiting = session.scalars(select(WebhookDelivery).where(*mine).limit(1)).one_or_none()
        if waiting is None:
            require_room_for_delivery(session, row)
            waiting = deliveries.add_webhook_delivery(
                session, row, TEST, deliveries.build_webhook_test_payload(row, now), now
            )
        record_audit_entry(
            session, actor, AuditedChange("webhook.test", row.id, {}, model=row.model_id), now
        )
        return build_delivery_response_with_payload(actor, waiting)


def find_webhook(session: Session, actor: Actor, webhook: str, *, lock: bool = False) -> Webhook:
    """Find a webhook the caller sees by its id.

    Raises:
        NotFound: the caller sees no such webhook.
    """
    query = select(Webhook).where(
        Webhook.id == webhook, actor.build_visible_condition(Webhook.owner_id)
    )
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFound(f"There is no webhook {webhook[:60]!r}.")
    return row


def require_webhook_enabled(row: Webhook) -> None:
    """Raise an error unless a webhook is enabled.

    Raises:
        WrongState: it is disabled.
    """
    if row.disabled_at is not None:
        raise WrongState(
            f"{row.id} is disabled, and nothing is sent to it. PATCH /v1/webhooks/{row.id} "
            f'{{"enabled": true}} first.',
            extra={"state": "disabled"},
        )


def require_room_for_delivery(session: Session, row: Webhook) -> None:
    """Raise an error if the owner has too many waiting webhook deliveries.

    Raises:
        TooManyRequests: too many are waiting.
    """
    if deliveries.count_pending_deliveries(session, row.owner_id) >= deliveries.MAX_PENDING:
        raise TooManyRequests(
            f"{deliveries.MAX_PENDING} deliveries of yours wait, the most that may: repair or "
            "disable the receivers that do not answer. GET /v1/webhooks shows how many wait at "
            "each."
        )


def build_webhook_responses(session: Session, rows: Sequence[Webhook]) -> list[WebhookOut]:
    """Build responses for webhooks, in four queries for any number."""
    ids = [row.id for row in rows]
    counts = select(WebhookDelivery.webhook_id, func.count()).where(
        WebhookDelivery.webhook_id.in_(ids), deliveries.WAITS
    )
    waiting = {
        id_: count for id_, count in session.execute(counts.group_by(WebhookDelivery.webhook_id))
    }
    newest = (
        select(WebhookDelivery.number)
        .where(WebhookDelivery.webhook_id == Webhook.id, WebhookDelivery.sent_at.is_not(None))
        .order_by(WebhookDelivery.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    tried = select(WebhookDelivery).where(
        WebhookDelivery.number.in_(select(newest).where(Webhook.id.in_(ids)))
    )
    last = {one.webhook_id: one for one in session.scalars(tried)}
    name_query = select(Model.id, Model.name).where(
        Model.id.in_({row.model_id for row in rows if row.model_id})
    )
    names = {id_: name for id_, name in session.execute(name_query)}
    return [
        _webhook_to_json(
            row, names.get(row.model_id or ""), waiting.get(row.id, 0), last.get(row.id)
        )
        for row in rows
    ]


def _webhook_to_json(
    row: Webhook, model_name: str | None, pending: int, last: WebhookDelivery | None
) -> WebhookOut:
    state = (
        "disabled" if row.disabled_at is not None else "failing" if row.failing_since else "enabled"
    )
    return {
        "id": row.id,
        "owner": row.owner_id,
        "url": row.url,
        "format": cast(Any, row.format),
        "events": cast(Any, row.events),
        "model": row.model_id,
        "model_name": model_name,
        "state": cast(Any, state),
        "disabled_at": format_rfc3339(row.disabled_at),
        "disabled_because": row.disabled_because,
        "failing_since": format_rfc3339(row.failing_since),
        "pending": pending,
        "dropped": row.dropped,
        "last": None if last is None else _build_last_delivery(last),
        "old_secret_until": format_rfc3339(row.previous_until),
        "created_at": format_rfc3339(row.created_at),
    }


def _build_last_delivery(row: WebhookDelivery) -> LastDelivery:
    assert row.sent_at is not None, "it was tried"
    return {
        "id": row.id,
        "type": row.type,
        "state": cast(Any, row.state),
        "status": row.status,
        "sent_at": format_rfc3339(row.sent_at),
    }


def _check_webhook_url(settings: Settings, url: str) -> HttpRequestTarget:
    """Check that a webhook's URL is an allowed address, and return its target.

    Raises:
        Invalid: it is not.
    """
    try:
        target = parse_url_target(url)
        resolve_addresses_and_require_allowed(target, parse_ip_networks(settings.webhook_allow))
    except AddressRefused as refused:
        raise Invalid(str(refused), fields=[{"field": "url", "message": str(refused)}]) from None
    return target


def _check_and_order_event_types(events: Sequence[str]) -> list[str]:
    """Check webhook event types, and return them in their usual order, each once.

    Raises:
        Invalid: an event is unknown, or there is none.
    """
    unknown = [event for event in events if event not in EVENTS]
    if unknown or not events:
        problem = (
            f"There is no event {unknown[0][:40]!r}" if unknown else "A webhook needs an event"
        )
        raise Invalid(
            f"{problem}: take some of {', '.join(EVENTS)}.",
            fields=[{"field": "events", "message": problem}],
        )
    return [event for event in EVENTS if event in events]


def _check_and_resolve_webhook_model(
    session: Session, actor: Actor, row: Webhook, model: str | None
) -> str | None:
    """Find the only model whose events a webhook receives; None for all models."""
    if model is None:
        return None
    model_row = find_model(session, actor, model)
    if model_row.owner_id != row.owner_id:
        raise Invalid(
            "A webhook receives events of its own owner's models alone: make one for the other "
            "owner."
        )
    return model_row.id


def _set_webhook_enabled(session: Session, row: Webhook, enabled: bool, now: float) -> None:
    """Enable or disable a webhook; waiting deliveries of an enabled one are due at once."""
    if not enabled:
        row.disabled_at, row.disabled_because, row.due_at = row.disabled_at or now, None, None
    elif row.disabled_at is not None:
        row.disabled_at = row.disabled_because = row.failing_since = None
        waits = select(WebhookDelivery.number).where(
            WebhookDelivery.webhook_id == row.id, deliveries.WAITS
        )
        row.due_at = now if session.scalar(waits.limit(1)) is not None else None


def _record_webhook_change_in_audit(
    session: Session,
    actor: Actor,
    row: Webhook,
    patch: WebhookChange,
    changed: list[str],
    now: float,
) -> None:
    """Record a change of a webhook in the audit trail."""
    # Null is a value here: it means all models.
    if "model" in patch and "model" not in changed:
        changed.append("model")
    data: Any = {
        "changed": changed,
        "events": row.events,
        "host": parse_url_target(row.url).host,
    }
    if patch.get("enabled") is not None:
        data["to"] = "enabled" if patch["enabled"] else "disabled"
    record_audit_entry(
        session, actor, AuditedChange("webhook.change", row.id, data, model=row.model_id), now
    )


def _require_webhook_limit_kept(session: Session, row: Webhook, max_webhooks: int) -> None:
    """Check that an owner does not have too many webhooks.

    Call this last in the transaction, since it locks the owner's row.
    """
    # Weaker than FOR UPDATE, with which transactions that have added rows of this owner would
    # deadlock.
    session.execute(
        select(Owner.id).where(Owner.id == row.owner_id).with_for_update(key_share=True)
    )
    mine = select(Webhook.id).where(Webhook.owner_id == row.owner_id, Webhook.id != row.id)
    other_ids = list(session.scalars(mine.order_by(Webhook.id)))
    if len(other_ids) >= max_webhooks:
        raise TooManyRequests(
            f"You have {max_webhooks} webhooks, the most that one owner may have: DELETE one at "
            f"/v1/webhooks/{{id}}, or let one"
            " be told of more.",
            extra={"webhooks": other_ids[:_LISTED]},
        )
