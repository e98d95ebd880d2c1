"""What is used: counts and bytes, per model and owner. For administrators."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import usage
from core.db.session import Database
from core.db.tables import Model, Owner
from core.protocol.answers.usage import UsagePage
from core.protocol.usage import ModelUsage, OwnerUsage
from core.requests.actor import Actor
from core.requests.pages import Page, page
from core.requests.times import rfc3339


def by_model(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> UsagePage:
    """A page of models with their counts and bytes (`core.db.usage.per_model`); deleted ones too until swept."""
    with db.read() as session:
        query = select(Model).where(actor.filter(Model.owner_id))
        found: Page[Model] = page(session, query, Model.id, limit, cursor)
        models = found.rows
        owners = _names(session, {m.owner_id for m in models})
        counted = usage.per_model(session, Model.id.in_([m.id for m in models]))
        items: list[ModelUsage | OwnerUsage] = [
            {
                "model": m.id,
                "name": m.name,
                "owner": owners[m.owner_id],
                "deleted": m.deleted_at is not None,
                **counted[m.id],
            }
            for m in models
        ]
        return {"items": items, "next_cursor": found.next_cursor}


def by_owner(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> UsagePage:
    """A page of owners with the sums over their models, the bytes of their bases and uploads, and `measured_at`.

    Workers measure from time to time; only who was never measured is measured here.
    """
    with db.read() as session:
        query = select(Owner).where(actor.filter(Owner.id))
        found: Page[Owner] = page(session, query, Owner.id, limit, cursor)
    items: list[ModelUsage | OwnerUsage] = [_owner(db, owner) for owner in found.rows]
    return {"items": items, "next_cursor": found.next_cursor}


def _owner(db: Database, owner: Owner) -> OwnerUsage:
    found = owner.usage or usage.measured(db, owner.id)
    return {
        "owner": owner.name,
        "measured_at": rfc3339(found["at"]),
        "models": found["models"],
        "tasks": found["tasks"],
        "versions": found["versions"],
        "jobs": found["jobs"],
        "bytes": {"uploads": 0, **found["bytes"]},  # figures from before there were any
    }


def _names(session: Session, ids: set[str]) -> dict[str, str]:
    rows = session.execute(select(Owner.id, Owner.name).where(Owner.id.in_(ids)))
    return {owner_id: name for owner_id, name in rows}
