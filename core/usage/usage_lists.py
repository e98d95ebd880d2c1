"""Usage: counts and bytes per model and per owner, for administrators."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.responses.usage import UsagePage
from core.contract.usage import ModelUsage, OwnerUsage
from core.database.session import Database
from core.database.tables import Model, Owner
from core.requests.actor import Actor
from core.requests.pages import ListPage, read_query_page
from core.requests.timestamps import format_rfc3339
from core.usage import usage_sums


def list_usage_by_model(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> UsagePage:
    """Return a page of models with their storage usage: counts and bytes.

    Deleted models are included until the sweep has removed them.
    """
    with db.read() as session:
        query = select(Model).where(actor.build_visible_condition(Model.owner_id))
        rows: ListPage[Model] = read_query_page(session, query, Model.id, limit, cursor)
        models = rows.rows
        owners = _find_owner_names(session, {m.owner_id for m in models})
        counted = usage_sums.sum_usage_by_model(session, Model.id.in_([m.id for m in models]))
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
        return {"items": items, "next_cursor": rows.next_cursor}


def list_usage_by_owner(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> UsagePage:
    """Return a page of owners with their storage usage: sums over models, bytes of bases and
    uploads.

    Workers measure from time to time; only owners that were never measured are measured here.
    """
    with db.read() as session:
        query = select(Owner).where(actor.build_visible_condition(Owner.id))
        owners: ListPage[Owner] = read_query_page(session, query, Owner.id, limit, cursor)
    # After the reading transaction, since measuring an owner writes.
    items: list[ModelUsage | OwnerUsage] = [_build_owner_usage(db, owner) for owner in owners.rows]
    return {"items": items, "next_cursor": owners.next_cursor}


def _build_owner_usage(db: Database, owner: Owner) -> OwnerUsage:
    measured = owner.usage or usage_sums.measure_and_store_owner_usage(db, owner.id)
    return {
        "owner": owner.name,
        "measured_at": format_rfc3339(measured["at"]),
        "models": measured["models"],
        "tasks": measured["tasks"],
        "versions": measured["versions"],
        "jobs": measured["jobs"],
        # figures measured before uploads existed lack them
        "bytes": {"uploads": 0, **measured["bytes"]},
    }


def _find_owner_names(session: Session, ids: set[str]) -> dict[str, str]:
    rows = session.execute(select(Owner.id, Owner.name).where(Owner.id.in_(ids)))
    return {owner_id: name for owner_id, name in rows}
