"""Production moves to the new model: it takes the old one's name, which is how clients ask for it; and back.

Both models are compared before, and what was compared is what stands there when the names move.
"""

from dataclasses import replace
from typing import Literal

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.db import owner_events
from core.db.session import Database
from core.db.tables import Model
from core.errors import WrongState
from core.line.line import PRODUCTION
from core.protocol.answers.audit import AuditData
from core.protocol.answers.owner_event import AliasMoved
from core.protocol.answers.rebase import RebaseOut
from core.requests.actor import Actor, find_model
from core.requests.audit import record
from core.requests.new_model import require_free_name
from core.requests.predict_keys import follow_name
from core.requests.rebase import free_name
from core.requests.rebase_comparison import Comparison, compare, to_json
from core.requests.rebase_plan import Plan, find_rebase, make_plan
from core.store import Blobs

Missing = Literal["refuse", "allow"]


def finish(
    db: Database,
    blobs: Blobs,
    actor: Actor,
    model: str,
    reason: str | None,
    missing: Missing = "refuse",
    *,
    seen: tuple[int, int] | None = None,
) -> RebaseOut:
    """Give the new model the old one's name; asked of the old model after that, give the name back to it.

    Args:
        reason: why, for the audit trail.
        missing: what happens where tasks have not arrived or are not measured.
        seen: the versions in production of the old and the new model on the page that a person decided by.

    Raises:
        NotFound: the caller sees no such model, or no rebase of it.
        WrongState: something is missing (`extra["missing"]`), production has moved meanwhile, or is there already.
        NameTaken, StoreCorrupt: another model has the name by now; a file that is compared is damaged.
    """
    found = compare(db, blobs, actor, model)
    try:
        with db.write() as session:
            old, new = _locked(session, actor, model)
            plan = make_plan(session, old, new)
            _require_compared(found.plan, plan, seen)
            is_back = plan.finished_at is not None
            is_old = find_model(session, actor, model).id == old.id
            if is_back:
                _require_back(is_old, old, new)
            else:
                _require_ready(is_old, old, new, found, missing)
            return _moved(session, db, actor, (old, new), found, reason, is_back=is_back)
    except IntegrityError:  # another request has just given the name of the old model to one more
        raise WrongState(
            "Another model has taken one of the names meanwhile. Nothing was changed: try again.",
            extra={"state": "open" if found.plan.finished_at is None else "finished"},
        ) from None


def _locked(session: Session, actor: Actor, model: str) -> tuple[Model, Model]:
    """Both rows, held, in the order of their ids: two requests do not wait for each other."""
    pair = find_rebase(session, actor, model)
    ids = sorted(one.id for one in pair)
    query = select(Model).where(Model.id.in_(ids)).order_by(Model.id).with_for_update()
    list(session.scalars(query.execution_options(populate_existing=True)))
    return find_rebase(session, actor, model)


def _require_compared(before: Plan, now: Plan, seen: tuple[int, int] | None) -> None:
    """Refuse where other versions are in production than were compared or seen, or other tasks have arrived."""
    compared, there = ((one.old, one.new, one.finished_at) for one in (before, now))
    arrived = [{task.number for task in one.tasks if task.arrived} for one in (before, now)]
    versions = (now.old["version"], now.new["version"])
    if compared != there or arrived[0] != arrived[1] or seen not in (None, versions):
        raise WrongState(
            "Production of one of the models has moved while they were compared. Nothing was changed: look at the "
            f"comparison again (GET /v1/models/{now.new['id']}/rebase), and then decide.",
            extra={"state": "open" if now.finished_at is None else "finished"},
        )


def _require_ready(is_old: bool, old: Model, new: Model, found: Comparison, missing: Missing) -> None:
    if is_old:
        raise WrongState(
            f"{old.name!r} is the old model. Production moves with POST /v1/models/{new.name}/rebase/finish.",
            extra={"state": "open", "new": new.id},
        )
    shown = to_json(found)
    if shown["new"]["version"] in (None, 0):
        raise WrongState(
            f"{new.name!r} has nothing in production that could answer. {shown['next']}",
            extra={"state": "open", "missing": shown["missing"]},
        )
    if shown["missing"] and missing == "refuse":
        raise WrongState(
            f"{new.name!r} cannot take the place of {old.name!r} yet: {shown['next']} To move production all the same, "
            'send {"missing": "allow"}.',
            extra={"state": "open", "missing": shown["missing"]},
        )


def _require_back(is_old: bool, old: Model, new: Model) -> None:
    if not is_old:
        raise WrongState(
            f"{new.name!r} stands in the place of {old.name!r} already. POST /v1/models/{old.name}/rebase/finish puts "
            "that one back.",
            extra={"state": "finished", "old": old.id},
        )


def _moved(
    session: Session,
    db: Database,
    actor: Actor,
    pair: tuple[Model, Model],
    found: Comparison,
    reason: str | None,
    *,
    is_back: bool,
) -> RebaseOut:
    """Swap the names and say so; the answer is what was compared, with both models as they are now."""
    old, new = pair
    now = db.now(session)
    comes, goes, ending = (old, new, "rebased") if is_back else (new, old, "before-rebase")
    name, before = goes.name, comes.name
    if goes.deleted_at is None:
        goes.name = free_name(session, goes.owner_id, name, ending)
        session.flush()
    else:
        require_free_name(session, comes.owner_id, name)
    comes.name = name
    if goes.deleted_at is None:
        follow_name(session, goes, comes)
    new.rebased_at = None if is_back else now
    session.flush()
    plan = make_plan(session, old, new)
    side = plan.old if is_back else plan.new
    data: AuditData = {
        "name": name,
        "model": goes.id,
        "version": side["version"] or 0,
        "reason": reason,
        "former_name": before,
    }
    record(session, actor, "model.finish-rebase", comes.id, data, now=now, model=comes.id)
    moved: AliasMoved = {"alias": PRODUCTION, "version": side["version"], "previous": None, "cause": "rebase"}
    owner_events.of_alias(session, comes, moved, now)
    compared = replace(found.plan, old=plan.old, new=plan.new, finished_at=plan.finished_at)
    return to_json(replace(found, plan=compared))
