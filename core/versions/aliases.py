"""Aliases: movable names for versions, with an append-only history.

`latest` follows every publish and cannot be moved by hand. The response to a move of `production`
says what it means for the model's lineage (`core.lineage`): if production follows later versions, and
which tasks and classes it does not cover now. A rollback returns to the previous target that passed
the gate; a second one goes further back, never forward again.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.error import AliasState
from core.contract.responses.audit import AuditData
from core.contract.responses.owner_event import AliasMoved
from core.contract.responses.versions.alias import AliasHistory, AliasMoveOut, AliasOut
from core.database import owner_events
from core.database.session import Database
from core.database.tables import Alias, AliasMove, Model, Task, Version
from core.errors import Invalid, NotFound, WrongState
from core.ids import is_allowed_model_or_alias_name
from core.lineage import lineage, wording
from core.lineage.coverage import list_taught_tasks
from core.lineage.lineage import PRODUCTION, AliasMoveOrigin
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, read_query_page
from core.requests.timestamps import format_rfc3339
from core.versions.versions import LATEST, find_version

MAX_ALIASES = 1000
_TARGETS = 20
"""Maximum number of targets that a refusal names."""
# A name of digits alone would be read as the number of a version (`find_version`).
_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class _CompletedAliasMove:
    """A move of an alias that was made: its cause, the version before, and tasks lost.

    Attributes:
        alias: the alias at its new version.
        previous: version that it was on before; None if the alias is new.
        move_origin: its cause and author.
        lost_tasks: tasks that production does not cover any more; None for other aliases.
    """

    alias: Alias
    previous: int | None
    move_origin: AliasMoveOrigin
    lost_tasks: list[int] | None = None


@dataclass(frozen=True)
class AliasMoveReasonAndSeenVersion:
    """A person's reason for moving an alias, and the version that the person saw the alias on.

    Attributes:
        seen: None if the version is not known.
    """

    reason: str | None = None
    seen: int | None = None


def set_alias(
    db: Database,
    actor: Actor,
    model: str,
    alias: str,
    version: int,
    decision: AliasMoveReasonAndSeenVersion,
) -> tuple[AliasOut, str | None]:
    """Move an alias to a version, and create the alias if it does not exist.

    Setting the same target again changes nothing.

    Returns:
        The alias, and the id of a job of the model that may run next.

    Raises:
        Invalid: the name is not allowed, the version is unknown, or `production` would move to a
            held version without a reason.
        WrongState: the version was taught nothing and `production` cannot move to it, or the alias
            has moved since it was seen.
    """
    _check_alias_name(alias)
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        target = lineage.find_version_by_number(session, row, version)
        if target is None:
            raise Invalid(
                f"Model {row.name!r} has no version {version}.",
                fields=[{"field": "version", "message": "no such version"}],
            )
        current = session.get(Alias, (row.id, alias))
        # Checked under the lock of the model's row, so that no other move comes in between.
        _require_alias_unmoved(row, current, decision.seen, version)
        if alias == PRODUCTION:
            return _set_production_version(session, db, actor, row, target, decision.reason)
        if current is not None and current.version == version:
            return _alias_to_json(current), None
        if current is None:
            count = len(session.scalars(select(Alias.name).where(Alias.model_id == row.id)).all())
            if count >= MAX_ALIASES:
                raise Invalid(f"A model may have {MAX_ALIASES} aliases.")
        move_origin = AliasMoveOrigin("set", actor.key_id, decision.reason)
        moved = lineage.point_alias_to_version(
            session, row, alias, version, db.now(session), move_origin
        )
        previous = None if current is None else current.version
        _record_move_in_audit(
            session, actor, row, _CompletedAliasMove(moved, previous, move_origin), db.now(session)
        )
        return _alias_to_json(moved), None


def roll_alias_back(
    db: Database,
    actor: Actor,
    model: str,
    alias: str,
    decision: AliasMoveReasonAndSeenVersion,
    version: int | None = None,
) -> tuple[AliasOut, str | None]:
    """Move an alias back to an earlier version: the given one, or the last that passed the gate.

    Production stays there until it is moved or set to follow its lineage again.

    Returns:
        The alias, and the id of a job of the model that may run next.

    Raises:
        NotFound: there is no such alias.
        Invalid: there is no such version.
        WrongState: there was no other target that passed the gate; or the given version cannot
            answer, was held, or is not older than the present one (`extra["targets"]` lists the
            possible ones); or the alias has moved since it was seen.
    """
    _check_alias_name(alias)
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        current = session.get(Alias, (row.id, alias))
        if current is None:
            raise NotFound(f"Model {row.name!r} has no alias {alias!r}.")
        _require_alias_unmoved(row, current, decision.seen, version)
        target = (
            _find_rollback_target(session, row, current)
            if version is None
            else _find_requested_rollback_target(session, row, current, version)
        )
        move_origin = AliasMoveOrigin("rollback", actor.key_id, decision.reason)
        if alias == PRODUCTION:
            return _move_production_and_rejudge_versions(
                session, db, actor, row, target, move_origin
            )
        # Read before the move, which changes this same row.
        previous = current.version
        moved = lineage.point_alias_to_version(
            session, row, alias, target.number, db.now(session), move_origin
        )
        _record_move_in_audit(
            session, actor, row, _CompletedAliasMove(moved, previous, move_origin), db.now(session)
        )
        return _alias_to_json(moved), None


def let_production_follow_lineage(
    db: Database, actor: Actor, model: str, alias: str
) -> tuple[AliasOut, str | None]:
    """Move the alias `production` to the newest version of the lineage and let it follow later
    versions.

    Repeating the call changes nothing.

    Raises:
        NotFound: there is no such alias.
        Invalid: the alias is one that cannot follow.
    """
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        if alias != PRODUCTION:
            if session.get(Alias, (row.id, alias)) is None:
                raise NotFound(f"Model {row.name!r} has no alias {alias!r}.")
            raise Invalid(f"Only 'production' can follow the lineage; {alias!r} is moved by hand.")
        find_version(session, row, PRODUCTION)  # raises while the model has no version yet
        previous = session.get_one(Alias, (row.id, PRODUCTION)).version
        if not row.production_follows:
            move_origin = AliasMoveOrigin("follow", actor.key_id)
            lineage.unpin_production_and_move_to_head(session, row, move_origin, db.now(session))
            followed = session.get_one(Alias, (row.id, PRODUCTION))
            _record_move_in_audit(
                session,
                actor,
                row,
                _CompletedAliasMove(followed, previous, move_origin),
                db.now(session),
            )
        moved = session.get_one(Alias, (row.id, PRODUCTION))
        return _production_move_to_json(session, row, moved, []), lineage.find_runnable_queued_job(
            session, row
        )


def delete_alias(db: Database, actor: Actor, model: str, alias: str) -> None:
    """Delete an alias of a model.

    Its history remains, and continues if an alias of that name is created again.

    Raises:
        NotFound: there is no such alias.
        Invalid: every model has this alias.
    """
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        if alias in (LATEST, PRODUCTION):
            raise Invalid(
                f"Every model has the alias {alias!r}: it cannot be deleted.",
                fields=[{"field": "alias", "message": "every model has it"}],
            )
        current = session.get(Alias, (row.id, alias))
        if current is None:
            raise NotFound(f"Model {row.name!r} has no alias {alias!r}.")
        now, version = db.now(session), current.version
        session.delete(current)
        moved: AliasMoved = {
            "alias": alias,
            "version": None,
            "previous": version,
            "cause": "delete",
        }
        owner_events.collect_owner_and_webhook_events_of_alias(session, row, moved, now)
        data: AuditData = {"alias": alias, "previous": version}
        record_audit_entry(
            session, actor, AuditedChange("alias.delete", row.id, data, model=row.id), now
        )


def list_alias_moves(
    db: Database, actor: Actor, model: str, alias: str, *, limit: int, cursor: str | None
) -> AliasHistory:
    """Return a page of an alias's moves, oldest first.

    Raises:
        NotFound: there is no such alias.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        # Every model has `latest`, although no row stores it.
        if alias != LATEST and session.get(Alias, (row.id, alias)) is None:
            raise NotFound(f"Model {row.name!r} has no alias {alias!r}.")
        query = select(AliasMove).where(AliasMove.model_id == row.id, AliasMove.alias == alias)
        moves: ListPage[AliasMove] = read_query_page(session, query, AliasMove.id, limit, cursor)
        return {
            "items": [_alias_move_to_json(move) for move in moves.rows],
            "next_cursor": moves.next_cursor,
        }


def list_rollback_targets(moves: list[AliasMove]) -> list[int]:
    """Return the versions that an alias can be rolled back to, oldest first.

    A rollback drops the versions it skipped, so that two rollbacks in a row go two steps back.

    Args:
        moves: moves of the alias in the order in which they were made.
    """
    stack: list[int] = []
    for move in moves:
        if not stack and move.previous is not None:
            stack.append(move.previous)
        if move.cause == "rollback" and move.version in stack:
            while stack[-1] != move.version:
                stack.pop()
        else:
            stack.append(move.version)
    # The last one is the present target, to which nothing rolls back.
    return stack[:-1]


def _require_alias_unmoved(
    model: Model, current: Alias | None, seen_version: int | None, target: int | None
) -> None:
    """Check that an alias has not moved since the caller saw it.

    A move to the version that the caller wants anyway is accepted.

    Raises:
        WrongState: the alias is on another version by now.
    """
    if current is None or seen_version is None or current.version in (seen_version, target):
        return
    raise WrongState(
        f"{current.name.capitalize()} of {model.name} is version {current.version} by now, and was "
        f"version {seen_version} when "
        "you decided this. Nothing was changed: look at the model again, and then decide."
    )


def _set_production_version(
    session: Session, db: Database, actor: Actor, model: Model, target: Version, reason: str | None
) -> tuple[AliasOut, str | None]:
    """Move production to a version; a held version needs a reason."""
    current = session.get_one(Alias, (model.id, PRODUCTION))
    if target.status == "held" and not (reason or "").strip():
        raise Invalid(
            f"{wording.explain_held_version(target.number, target.gate)} To put it in production all the "
            f"same, give a reason: "
            f'{{"version": {target.number}, "reason": "…"}}.',
            fields=[{"field": "reason", "message": "needed for a held version"}],
        )
    # Setting pinned production to the head changes something: it follows later versions again.
    if target.number == current.version and (
        model.production_follows or target.number != model.head
    ):
        return _production_move_to_json(session, model, current, []), None
    if target.number != current.version:
        _require_version_with_tasks(session, model, current, target)
    return _move_production_and_rejudge_versions(
        session, db, actor, model, target, AliasMoveOrigin("set", actor.key_id, reason)
    )


def _move_production_and_rejudge_versions(
    session: Session,
    db: Database,
    actor: Actor,
    model: Model,
    target: Version,
    move_origin: AliasMoveOrigin,
) -> tuple[AliasOut, str | None]:
    """Move production, and publish held versions that now pass; return response and next job."""
    current = session.get_one(Alias, (model.id, PRODUCTION))
    previous, now = current.version, db.now(session)
    uncovered_tasks = lineage.promote_version(session, model, target, move_origin, now)
    lost_tasks = [task.number for task in uncovered_tasks]
    moved = _CompletedAliasMove(current, previous, move_origin, lost_tasks)
    _record_move_in_audit(session, actor, model, moved, db.now(session))
    response = _production_move_to_json(session, model, current, uncovered_tasks)
    passed = lineage.rejudge_and_publish_held_versions(session, model, now)
    if passed:  # the move has settled the check that held these versions
        # Built again, since production may follow a version that is published now.
        response = _production_move_to_json(session, model, current, uncovered_tasks)
        response["warnings"] += [
            wording.describe_held_version_now_published(number) for number in passed
        ]
    return response, lineage.find_runnable_queued_job(session, model)


def _find_rollback_target(session: Session, model: Model, current: Alias) -> Version:
    """Return the newest earlier version of an alias that passed the gate and, for production, can
    answer.
    """
    moves = session.scalars(
        select(AliasMove)
        .where(AliasMove.model_id == model.id, AliasMove.alias == current.name)
        .order_by(AliasMove.id)
    ).all()
    for number in reversed(list_rollback_targets(list(moves))):
        target = lineage.find_version_by_number(session, model, number)
        # An alias that returned to a version has it twice in its history: that is no way back.
        if number == current.version or target is None or not target.gate.get("passed", True):
            continue
        if current.name != PRODUCTION or list_taught_tasks(target.manifest):
            return target
    raise _build_no_rollback_error(
        session, model, current, f"There is no earlier version to roll {current.name!r} back to."
    )


def _find_requested_rollback_target(
    session: Session, model: Model, current: Alias, number: int
) -> Version:
    """Return the version of that number, after checking that the alias can be rolled back to it."""
    target = lineage.find_version_by_number(session, model, number)
    if target is None:
        raise Invalid(
            f"Model {model.name!r} has no version {number}.",
            fields=[{"field": "version", "message": "no such version"}],
        )
    if number >= current.version:
        raise _build_no_rollback_error(
            session,
            model,
            current,
            f"A rollback goes back: {current.name!r} is on version {current.version}, and {number} "
            f"is not older.",
        )
    if target.status == "held":
        raise _build_no_rollback_error(
            session, model, current, wording.explain_held_version(number, target.gate)
        )
    if current.name == PRODUCTION:
        _require_version_with_tasks(session, model, current, target)
    return target


def _require_version_with_tasks(
    session: Session, model: Model, current: Alias, target: Version
) -> None:
    """Check that a version has learned at least one task, so that it can predict."""
    if not list_taught_tasks(target.manifest):
        text = f"Version {target.number} was taught no task and cannot answer."
        raise _build_no_rollback_error(session, model, current, text)


def _build_no_rollback_error(
    session: Session, model: Model, current: Alias, why: str
) -> WrongState:
    """Return the error that an alias cannot be rolled back, with the versions that it can be set
    to.
    """
    query = select(Version.number).where(
        Version.model_id == model.id,
        Version.status == "published",
        Version.number > 0,
        Version.number != current.version,
    )
    targets = sorted(session.scalars(query.order_by(Version.number.desc()).limit(_TARGETS)))
    can = ""
    if targets:
        named = wording.join_words_with_conjunction(
            [str(number) for number in targets], _TARGETS, "or"
        )
        can = f" PUT /v1/models/{model.name}/aliases/{current.name} can put it on version {named}."
    state: AliasState = {"alias": current.name, "version": current.version}
    return WrongState(f"{why}{can}", extra={"state": state, "targets": targets})


def _check_alias_name(alias: str) -> None:
    """Check that a name is allowed for an alias that a person sets."""
    if alias == LATEST:
        raise Invalid(
            "The alias 'latest' follows the newest published version and cannot be moved by hand."
        )
    if not is_allowed_model_or_alias_name(alias) or _DIGITS.fullmatch(alias):
        raise Invalid(
            f"{alias!r} cannot be an alias: use lower-case letters, digits, '.', '_' and '-' (at "
            "most 63), not digits only and not the beginning of an id.",
            fields=[{"field": "alias", "message": "bad name"}],
        )


def _record_move_in_audit(
    session: Session, actor: Actor, model: Model, moved: _CompletedAliasMove, now: float
) -> None:
    """Record a move of an alias in the audit trail."""
    data: AuditData = {
        "alias": moved.alias.name,
        "version": moved.alias.version,
        "previous": moved.previous,
        "reason": moved.move_origin.reason,
    }
    if moved.lost_tasks is not None:
        data["lost_tasks"] = moved.lost_tasks
    record_audit_entry(
        session,
        actor,
        AuditedChange(f"alias.{moved.move_origin.cause}", model.id, data, model=model.id),
        now,
    )


def _production_move_to_json(
    session: Session, model: Model, alias: Alias, lost_tasks: Collection[Task]
) -> AliasOut:
    """Return the response to a move of production, with lost tasks and ways to regain them."""
    covered_classes: set[str] = set()
    # In the task scenario each task has its own classes, so no other task covers them.
    if lost_tasks and model.scenario != "task":
        production = lineage.find_version_by_number(session, model, alias.version)
        covered = list_taught_tasks(production.manifest) if production is not None else []
        query = select(Task.classes).where(Task.model_id == model.id, Task.number.in_(covered))
        covered_classes = {label for classes in session.scalars(query) for label in classes}
    warnings = [
        wording.describe_task_lost_by_alias_move(model, task, alias.version) for task in lost_tasks
    ]
    if not model.production_follows:
        warnings.append(wording.explain_pinned_production(model, alias.version))
    return {
        **_alias_to_json(alias),
        "follows": model.production_follows,
        "line_head": model.head,
        "lost_tasks": [
            {
                "task": task.number,
                "name": task.name,
                "classes": sorted(task.classes),
                "lost_classes": sorted(set(task.classes) - covered_classes),
                "standing": task.standing,
                "training_data_until": format_rfc3339(
                    wording.find_training_image_deletion_time(model, task)
                ),
                "can_relearn": wording.can_relearn_task(task),
            }
            for task in lost_tasks
        ],
        "warnings": warnings,
    }


def _alias_to_json(alias: Alias) -> AliasOut:
    return {
        "name": alias.name,
        "version": alias.version,
        "updated_at": format_rfc3339(alias.updated_at),
        "follows": None,
        "line_head": None,
        "lost_tasks": [],
        "warnings": [],
    }


def _alias_move_to_json(move: AliasMove) -> AliasMoveOut:
    return {
        "id": move.id,
        "version": move.version,
        "previous": move.previous,
        "cause": move.cause,
        "key": move.actor,
        "reason": move.reason,
        "at": format_rfc3339(move.at),
    }
