"""Aliases: movable names for versions, with a history that is only ever added to.

`production` and `latest` follow every publish; `latest` cannot be moved by hand. A rollback goes back to
the previous target whose gate passed, and a second one goes further back, never forward again.
"""

import re
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Alias, AliasMove, Model, Version
from core.errors import Invalid, NotFound, WrongState
from core.ids import is_name
from core.requests.actor import Actor, find_model
from core.requests.audit import record
from core.requests.pages import page
from core.requests.times import rfc3339
from core.requests.versions import LATEST

PRODUCTION = "production"
MAX_ALIASES = 1000
_DIGITS = re.compile(r"[0-9]+")


def set_alias(
    db: Database, actor: Actor, model: str, alias: str, *, version: int, reason: str | None
) -> dict[str, Any]:
    """Point an alias at a version; made when new. The same target again changes nothing.

    Raises:
        Invalid: a name that no alias may have, an unknown version, or `production` moved to a held version
            without a reason.
    """
    _check_name(alias)
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        target = _version(session, row, version)
        if target is None:
            raise Invalid(
                f"Model {row.name!r} has no version {version}.",
                fields=[{"field": "version", "message": "no such version"}],
            )
        if alias == PRODUCTION and not _passed(target) and not (reason or "").strip():
            raise Invalid(
                f"Version {version} did not pass its gate. To put it in production all the same, give a reason.",
                fields=[{"field": "reason", "message": "needed for a held version"}],
            )
        current = session.get(Alias, (row.id, alias))
        if current is not None and current.version == version:
            return _show(current)
        if current is None:
            count = len(session.scalars(select(Alias.name).where(Alias.model_id == row.id)).all())
            if count >= MAX_ALIASES:
                raise Invalid(f"A model may have {MAX_ALIASES} aliases.")
        return _show(_move(session, db, actor, row, alias, current, version, "set", reason))


def rollback(db: Database, actor: Actor, model: str, alias: str, *, reason: str | None) -> dict[str, Any]:
    """Point an alias at its previous target whose gate passed.

    Raises:
        NotFound: no such alias.
        WrongState: it never had another target whose gate passed.
    """
    _check_name(alias)
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        current = session.get(Alias, (row.id, alias))
        if current is None:
            raise NotFound(f"Model {row.name!r} has no alias {alias!r}.")
        moves = session.scalars(
            select(AliasMove)
            .where(AliasMove.model_id == row.id, AliasMove.alias == alias)
            .order_by(AliasMove.id)
        ).all()
        for number in reversed(earlier_targets(list(moves))):
            target = _version(session, row, number)
            if number != current.version and target is not None and _passed(target):
                return _show(_move(session, db, actor, row, alias, current, number, "rollback", reason))
        raise WrongState(
            f"There is no earlier version to roll {alias!r} back to.",
            extra={"state": {"alias": alias, "version": current.version}},
        )


def history(
    db: Database, actor: Actor, model: str, alias: str, *, limit: int, cursor: str | None
) -> dict[str, Any]:
    """A page of an alias's moves, oldest first.

    Raises:
        NotFound: no such alias.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        if alias != LATEST and session.get(Alias, (row.id, alias)) is None:
            raise NotFound(f"Model {row.name!r} has no alias {alias!r}.")
        query = select(AliasMove).where(AliasMove.model_id == row.id, AliasMove.alias == alias)
        return page(session, query, AliasMove.id, limit, cursor, lambda entry: _show_move(entry[0]))


def earlier_targets(moves: list[AliasMove]) -> list[int]:
    """Targets that a rollback may go back to, oldest first: those left behind and not rolled away.

    `moves` are in the order made. A rollback forgets what it went back over, so that two in a row go two
    steps back.
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
    return stack[:-1]


def _check_name(alias: str) -> None:
    if alias == LATEST:
        raise Invalid("The alias 'latest' follows the newest published version and cannot be moved by hand.")
    if not is_name(alias) or _DIGITS.fullmatch(alias):
        raise Invalid(
            f"{alias!r} cannot be an alias: use lower-case letters, digits, '.', '_' and '-' (at most 63), "
            "not digits only and not the beginning of an id.",
            fields=[{"field": "alias", "message": "bad name"}],
        )


def _version(session: Session, model: Model, number: int) -> Version | None:
    query = select(Version).where(Version.model_id == model.id, Version.number == number)
    return session.scalars(query).one_or_none()


def _passed(version: Version) -> bool:
    return version.status == "published" and bool(version.gate.get("passed", True))


def _move(
    session: Session,
    db: Database,
    actor: Actor,
    model: Model,
    alias: str,
    current: Alias | None,
    version: int,
    cause: str,
    reason: str | None,
) -> Alias:
    now = db.now(session)
    previous = None if current is None else current.version
    if current is None:
        current = Alias(model_id=model.id, name=alias, version=version, updated_at=now)
        session.add(current)
    else:
        current.version = version
        current.updated_at = now
    session.add(
        AliasMove(
            model_id=model.id,
            alias=alias,
            version=version,
            previous=previous,
            cause=cause,
            actor=actor.key_id,
            reason=reason,
            at=now,
        )
    )
    data = {"alias": alias, "version": version, "previous": previous, "reason": reason}
    record(session, actor, f"alias.{cause}", model.id, data, now=now)
    return current


def _show(alias: Alias) -> dict[str, Any]:
    return {"name": alias.name, "version": alias.version, "updated_at": rfc3339(alias.updated_at)}


def _show_move(move: AliasMove) -> dict[str, Any]:
    return {
        "id": move.id,
        "version": move.version,
        "previous": move.previous,
        "cause": move.cause,
        "key": move.actor,
        "reason": move.reason,
        "at": rfc3339(move.at),
    }
