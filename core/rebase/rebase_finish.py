"""Finish a rebase, or undo it: the new model takes the old one's name, by which clients ask for it.

Both models are compared first, and the names move only if the compared versions are still in
production.
"""

from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.contract.responses.audit import AuditData
from core.contract.responses.owner_event import AliasMoved
from core.contract.responses.versions.rebase import RebaseOut
from core.database import owner_events
from core.database.session import Database
from core.database.tables import Model
from core.errors import WrongState
from core.keys.predict_keys import rebind_predict_keys_to_model
from core.lineage.lineage import PRODUCTION
from core.models.new_model import require_free_model_name
from core.rebase.rebase import find_free_model_name
from core.rebase.rebase_comparison import (
    RebaseComparison,
    compare_rebased_models,
    rebase_comparison_to_json,
)
from core.rebase.rebase_plan import RebaseProgress, compute_rebase_progress, find_rebase_models
from core.requests.actor import Actor, UseCaseTransaction, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.storage import Blobs

Missing = Literal["refuse", "allow"]


@dataclass(frozen=True)
class RebaseDecision:
    """A user's decision to finish a rebase: reason, and whether missing tasks are allowed.

    Attributes:
        reason: reason for the audit trail.
        missing: "refuse" or "allow" tasks that have not arrived or are not measured.
        seen_versions: versions in production of the old and the new model on the page on which the
            person decided.
    """

    reason: str | None = None
    missing: Missing = "refuse"
    seen_versions: tuple[int, int] | None = None


def finish_rebase(
    db: Database, blobs: Blobs, actor: Actor, model: str, decision: RebaseDecision
) -> RebaseOut:
    """Finish a rebase: give the new model the old one's name.

    Called with the old model afterwards, give the name back.

    Raises:
        NotFound: the caller sees no such model, or no rebase of it.
        WrongState: something is missing (`extra["missing"]`), production has moved meanwhile, or
            the model is in place already.
        NameTaken: another model has the name by now.
        StoredObjectDamaged: a compared file is damaged.
    """
    # Before the transaction, since it reads many files; the locked rows must then agree with it.
    comparison = compare_rebased_models(db, blobs, actor, model)
    try:
        with db.write() as session:
            old, new = _lock_both_rebase_models(session, actor, model)
            plan = compute_rebase_progress(session, old, new)
            _require_rebase_comparison_current(comparison.plan, plan, decision.seen_versions)
            is_back = plan.finished_at is not None
            is_old = find_model(session, actor, model).id == old.id
            if is_back:
                _require_undo_called_on_old_model(is_old, old, new)
            else:
                _require_new_model_can_take_over(is_old, old, new, comparison, decision.missing)
            transaction = UseCaseTransaction(session, actor, db.now(session))
            pair = (old, new)
            return _hand_over_name_and_predict_keys(
                transaction, pair, comparison, decision.reason, is_back=is_back
            )
    # a concurrent request has just given the old model's name to another model
    except IntegrityError:
        raise WrongState(
            "Another model has taken one of the names meanwhile. Nothing was changed: try again.",
            extra={"state": "open" if comparison.plan.finished_at is None else "finished"},
        ) from None


def _lock_both_rebase_models(session: Session, actor: Actor, model: str) -> tuple[Model, Model]:
    """Lock the rows of both models of a rebase in the order of their ids, to avoid deadlocks."""
    pair = find_rebase_models(session, actor, model)
    ids = sorted(one.id for one in pair)
    query = select(Model).where(Model.id.in_(ids)).order_by(Model.id).with_for_update()
    list(session.scalars(query.execution_options(populate_existing=True)))
    # Again, since names may have moved before the rows were locked.
    return find_rebase_models(session, actor, model)


def _require_rebase_comparison_current(
    before: RebaseProgress, now: RebaseProgress, seen_versions: tuple[int, int] | None
) -> None:
    """Check that the compared versions and tasks are still current, and those the user saw."""
    compared, current = ((one.old, one.new, one.finished_at) for one in (before, now))
    arrived = [{task.number for task in one.tasks if task.arrived} for one in (before, now)]
    versions = (now.old["version"], now.new["version"])
    if compared != current or arrived[0] != arrived[1] or seen_versions not in (None, versions):
        raise WrongState(
            "Production of one of the models has moved while they were compared. Nothing was "
            "changed: look at the "
            f"comparison again (GET /v1/models/{now.new['id']}/rebase), and then decide.",
            extra={"state": "open" if now.finished_at is None else "finished"},
        )


def _require_new_model_can_take_over(
    is_old: bool, old: Model, new: Model, comparison: RebaseComparison, missing: Missing
) -> None:
    """Check that the new model of a rebase can take over the old one's name."""
    if is_old:
        raise WrongState(
            f"{old.name!r} is the old model. Production moves with POST "
            f"/v1/models/{new.name}/rebase/finish.",
            extra={"state": "open", "new": new.id},
        )
    reply = rebase_comparison_to_json(comparison)
    # `missing="allow"` does not help here: without a learned version, no request gets an answer.
    if reply["new"]["version"] in (None, 0):
        raise WrongState(
            f"{new.name!r} has nothing in production that could answer. {reply['next']}",
            extra={"state": "open", "missing": reply["missing"]},
        )
    if reply["missing"] and missing == "refuse":
        raise WrongState(
            f"{new.name!r} cannot take the place of {old.name!r} yet: {reply['next']} To move "
            f"production all the same, "
            'send {"missing": "allow"}.',
            extra={"state": "open", "missing": reply["missing"]},
        )


def _require_undo_called_on_old_model(is_old: bool, old: Model, new: Model) -> None:
    """Check that an undo of a rebase is called on the old model."""
    if not is_old:
        raise WrongState(
            f"{new.name!r} stands in the place of {old.name!r} already. POST "
            f"/v1/models/{old.name}/rebase/finish puts "
            "that one back.",
            extra={"state": "finished", "old": old.id},
        )


def _hand_over_name_and_predict_keys(
    transaction: UseCaseTransaction,
    pair: tuple[Model, Model],
    comparison: RebaseComparison,
    reason: str | None,
    *,
    is_back: bool,
) -> RebaseOut:
    """Give a model of a rebase the other's name and predict keys; return their comparison."""
    session, actor, now = transaction.session, transaction.actor, transaction.now
    old, new = pair
    comes, goes, ending = (old, new, "rebased") if is_back else (new, old, "before-rebase")
    name, former_name = goes.name, comes.name
    if goes.deleted_at is None:
        goes.name = find_free_model_name(session, goes.owner_id, name, ending)
        # Flushed before the other model takes the name, since names of an owner are unique.
        session.flush()
    else:
        require_free_model_name(session, comes.owner_id, name)
    comes.name = name
    if goes.deleted_at is None:
        rebind_predict_keys_to_model(session, goes, comes)
    new.rebased_at = None if is_back else now
    session.flush()
    plan = compute_rebase_progress(session, old, new)
    side = plan.old if is_back else plan.new
    data: AuditData = {
        "name": name,
        "model": goes.id,
        "version": side["version"] or 0,
        "reason": reason,
        "former_name": former_name,
    }
    record_audit_entry(
        session, actor, AuditedChange("model.finish-rebase", comes.id, data, model=comes.id), now
    )
    moved: AliasMoved = {
        "alias": PRODUCTION,
        "version": side["version"],
        "previous": None,
        "cause": "rebase",
    }
    owner_events.collect_owner_and_webhook_events_of_alias(session, comes, moved, now)
    compared = replace(comparison.plan, old=plan.old, new=plan.new, finished_at=plan.finished_at)
    return rebase_comparison_to_json(replace(comparison, plan=compared))
