"""The outbox of webhooks: events become deliveries in the transaction in which they happen.

A change that is rolled back is therefore never delivered, and a committed one is never forgotten,
even after a crash. The rows are written last in their transaction, with the rows of their webhooks
locked: for each webhook, numbers rise in the order of commits.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from sqlalchemy import ColumnElement, func, literal_column, select
from sqlalchemy.orm import Session

from core.contract.reports.report import ExportReport
from core.contract.webhook import TEST, WebhookData, WebhookPayload
from core.database.tables.job import Job
from core.database.tables.model import Model
from core.database.tables.version import Version
from core.database.tables.webhook import PENDING, Webhook, WebhookDelivery
from core.ids import new_id

MAX_PENDING = 10_000
"""Maximum number of waiting deliveries of an owner.

Further events are only counted at their webhook.
"""
MAX_GATE_BYTES = 16 << 10
"""Maximum bytes of a gate's verdict in a payload of at most 20 kB.

Of a larger one, only its outcome is sent.
"""
_RECORDED = "deliveries"
WAITING: ColumnElement[str] = literal_column(f"'{PENDING}'")
"""A literal, since only then can the partial indexes of waiting deliveries be used."""
WAITS: ColumnElement[bool] = WebhookDelivery.state == WAITING


@dataclass(frozen=True)
class _CollectedWebhookEvent:
    """A webhook event that is recorded during a transaction and written at its end."""

    type: str
    owner_id: str
    model_id: str
    data: WebhookData
    at: float
    version: Version | None = None
    """Version whose gate belongs to the event, as it is when the transaction ends."""


def collect_job_outcome_for_webhooks(
    session: Session,
    job: Job,
    error: str | None,
    outcome: str | None,
    version: int | None,
    now: float,
) -> None:
    """Record for webhooks that a job has ended, and how.

    Args:
        error: kind of the error, if any.
        outcome: published or held, for the `version` that the job made.
    """
    data: WebhookData = {
        "job": job.id,
        "kind": job.kind,
        "task": job.task_number,
        "version": version,
    }
    if error is not None:
        data["error"] = error
    if outcome is not None:
        data["outcome"] = outcome
    collect_webhook_event_until_commit(
        session, f"job.{job.state}", job.owner_id, job.model_id, data, now
    )


def collect_finished_export_for_webhooks(session: Session, job: Job, now: float) -> None:
    """Record for webhooks that an exported download is ready."""
    report = cast(ExportReport, job.report)
    data: WebhookData = {"job": job.id, "version": report["version"], "format": report["format"]}
    if "sha256" in report and "bytes" in report:
        data["sha256"], data["bytes"] = report["sha256"], report["bytes"]
    collect_webhook_event_until_commit(
        session, "export.ready", job.owner_id, job.model_id, data, now
    )


def collect_version_outcome_for_webhooks(
    session: Session, model: Model, version: Version, now: float
) -> None:
    """Record for webhooks that a version was published or held."""
    data: WebhookData = {
        "version": version.number,
        "task": version.task_number,
        "job": version.job_id,
        "status": version.status,
    }
    _append_webhook_event_to_session(
        session,
        _CollectedWebhookEvent(
            f"version.{version.status}", model.owner_id, model.id, data, now, version
        ),
    )


def collect_webhook_event_until_commit(
    session: Session, type: str, owner_id: str, model_id: str, data: WebhookData, now: float
) -> None:
    """Record an event of a model, to be sent to its owner's webhooks after the commit.

    Args:
        type: one of `core.contract.webhook.EVENTS`.
        data: facts besides the model.
    """
    _append_webhook_event_to_session(
        session, _CollectedWebhookEvent(type, owner_id, model_id, data, now)
    )


def _append_webhook_event_to_session(session: Session, event: _CollectedWebhookEvent) -> None:
    # In the session, so that a rollback forgets the event with its change.
    session.info.setdefault(_RECORDED, []).append(event)


def write_collected_webhook_deliveries(session: Session) -> None:
    """Store a transaction's recorded events as deliveries to each webhook that is subscribed to
    them.

    Call this last before the commit.
    """
    recorded: list[_CollectedWebhookEvent] = session.info.pop(_RECORDED, [])
    webhook_ids = _find_subscribed_webhook_ids(session, recorded) if recorded else []
    if not webhook_ids:
        return
    session.flush()
    # In the order of ids, so that two transactions cannot deadlock.
    query = (
        select(Webhook)
        .where(Webhook.id.in_(webhook_ids), Webhook.disabled_at.is_(None))
        .order_by(Webhook.id)
    )
    # Read again under the lock, since a webhook may have been changed or disabled meanwhile.
    hooks = session.scalars(
        query.with_for_update(key_share=True).execution_options(populate_existing=True)
    ).all()
    owners = {hook.owner_id for hook in hooks}
    room = {owner: MAX_PENDING - count_pending_deliveries(session, owner) for owner in owners}
    names = _read_model_names_by_id(session, {one.model_id for one in recorded})
    payloads = [_build_webhook_payload(one, names.get(one.model_id, "")) for one in recorded]
    for hook in hooks:
        for one, payload in zip(recorded, payloads, strict=True):
            if not _is_webhook_subscribed(hook, one):
                continue
            if room[hook.owner_id] <= 0:
                hook.dropped += 1
                continue
            room[hook.owner_id] -= 1
            add_webhook_delivery(session, hook, one.type, payload, one.at, model_id=one.model_id)


def add_webhook_delivery(
    session: Session,
    hook: Webhook,
    type: str,
    payload: str,
    now: float,
    *,
    model_id: str | None = None,
) -> WebhookDelivery:
    """Add a delivery that is due at once, for a webhook whose row is locked."""
    row = WebhookDelivery(
        id=new_id("dlv"),
        webhook_id=hook.id,
        owner_id=hook.owner_id,
        model_id=model_id,
        type=type,
        payload=payload,
        state=PENDING,
        attempts=0,
        next_at=now,
        created_at=now,
    )
    session.add(row)
    session.flush()  # numbers rise in this order
    hook.due_at = now if hook.due_at is None else min(hook.due_at, now)
    return row


def build_webhook_test_payload(hook: Webhook, now: float) -> str:
    """Return the JSON payload of a webhook's test delivery."""
    return _encode_webhook_payload(
        {"type": TEST, "timestamp": _format_rfc3339(now), "data": {"webhook": hook.id}}
    )


def count_pending_deliveries(session: Session, owner_id: str) -> int:
    """Return how many webhook deliveries of an owner are not sent yet."""
    return (
        session.scalar(select(func.count()).where(WebhookDelivery.owner_id == owner_id, WAITS)) or 0
    )


def _find_subscribed_webhook_ids(
    session: Session, events: list[_CollectedWebhookEvent]
) -> list[str]:
    """Return the ids of an owner's webhooks that are subscribed to any of the events.

    Most transactions have none, and lock nothing.
    """
    owners = {one.owner_id for one in events}
    query = select(Webhook).where(Webhook.owner_id.in_(owners), Webhook.disabled_at.is_(None))
    return [
        hook.id
        for hook in session.scalars(query)
        if any(_is_webhook_subscribed(hook, one) for one in events)
    ]


def _is_webhook_subscribed(hook: Webhook, event: _CollectedWebhookEvent) -> bool:
    """Return True if a webhook is subscribed to an event."""
    return (
        hook.owner_id == event.owner_id
        and event.type in hook.events
        and hook.model_id in (None, event.model_id)
    )


def _read_model_names_by_id(session: Session, models: set[str]) -> dict[str, str]:
    return {
        id_: name
        for id_, name in session.execute(select(Model.id, Model.name).where(Model.id.in_(models)))
    }


def _build_webhook_payload(event: _CollectedWebhookEvent, name: str) -> str:
    """Return the payload of a webhook event as JSON."""
    data: WebhookData = {"model": event.model_id, "name": name, **event.data}
    if event.version is not None:
        gate = event.version.gate
        large = len(json.dumps(gate).encode()) > MAX_GATE_BYTES
        data["gate"] = {"passed": gate["passed"], "checks": []} if large else gate
    return _encode_webhook_payload(
        {"type": event.type, "timestamp": _format_rfc3339(event.at), "data": data}
    )


def _encode_webhook_payload(payload: WebhookPayload) -> str:
    return json.dumps(payload, separators=(",", ":"))


def _format_rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
