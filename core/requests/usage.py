"""What is used: counts and bytes, per model and owner. For administrators."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import usage
from core.db.session import Database
from core.db.tables import Model, Owner
from core.requests.actor import Actor
from core.requests.pages import page
from core.requests.times import rfc3339


def by_model(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> dict[str, Any]:
    """A page of models with their counts and bytes (`core.db.usage.per_model`); deleted ones too until swept."""
    with db.read() as session:
        answer = page(
            session, select(Model).where(actor.filter(Model.owner_id)), Model.id, limit, cursor, _row
        )
        models: list[Model] = answer["items"]
        owners = _names(session, {m.owner_id for m in models})
        counted = usage.per_model(session, Model.id.in_([m.id for m in models]))
        answer["items"] = [
            {
                "model": m.id,
                "name": m.name,
                "owner": owners[m.owner_id],
                "deleted": m.deleted_at is not None,
                **counted[m.id],
            }
            for m in models
        ]
        return answer


def by_owner(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> dict[str, Any]:
    """A page of owners with the sums over their models, the bytes of their bases, and `measured_at`.

    Workers measure from time to time; only who was never measured is measured here.
    """
    with db.read() as session:
        answer = page(session, select(Owner).where(actor.filter(Owner.id)), Owner.id, limit, cursor, _row)
    answer["items"] = [_owner(db, owner) for owner in answer["items"]]
    return answer


def _owner(db: Database, owner: Owner) -> dict[str, Any]:
    found = dict(owner.usage or usage.measured(db, owner.id))
    return {"owner": owner.name, "measured_at": rfc3339(found.pop("at")), **found}


def _names(session: Session, ids: set[str]) -> dict[str, str]:
    rows = session.execute(select(Owner.id, Owner.name).where(Owner.id.in_(ids)))
    return {owner_id: name for owner_id, name in rows}


def _row(entry: Any) -> Any:
    return entry[0]
