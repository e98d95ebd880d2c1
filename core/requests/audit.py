"""The audit trail: one row for every change that somebody asked for, in the same transaction."""

import json

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Audit
from core.protocol.answers.audit import AuditData, AuditOut, AuditPage
from core.requests.actor import Actor
from core.requests.pages import Page, page
from core.requests.times import rfc3339

MAX_DATA_BYTES = 16 << 10
"""Of what a row keeps of a change, in UTF-8: of more, only the fields' names and the size."""


def record(session: Session, actor: Actor, action: str, object: str, data: AuditData, *, now: float) -> None:
    """Add a row to the caller's transaction.

    Args:
        action: noun and verb, such as `model.create`.
        object: id of what changed.
        data: what is worth keeping of the change; never a secret.
        now: seconds since 1970 by the database's clock.
    """
    size = len(json.dumps(data, ensure_ascii=False, default=str).encode())
    if size > MAX_DATA_BYTES:
        data = {"left_out": sorted(data)[:20], "bytes": size}
    session.add(
        Audit(at=now, owner_id=actor.owner_id, actor=actor.key_id, action=action, object=object, data=data)
    )


def list_audit(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> AuditPage:
    """A page of the trail, oldest first, of all owners the caller sees."""
    with db.read() as session:
        query = select(Audit).where(actor.filter(Audit.owner_id))
        found: Page[Audit] = page(session, query, Audit.id, limit, cursor)
        return {"items": [_to_json(row) for row in found.rows], "next_cursor": found.next_cursor}


def _to_json(row: Audit) -> AuditOut:
    return {
        "id": row.id,
        "at": rfc3339(row.at),
        "owner": row.owner_id,
        "key": row.actor,
        "action": row.action,
        "object": row.object,
        "data": row.data,
    }
