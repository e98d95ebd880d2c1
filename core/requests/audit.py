"""The audit trail: one row for every requested change, written in the same transaction."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, func, insert, literal, select, tuple_
from sqlalchemy.orm import Session

from core.contract.responses.audit import AuditData, AuditOut, AuditPage
from core.database.session import Database
from core.database.tables import AccessKey, AuditEntry, Model, Owner
from core.ids import is_id
from core.requests.actor import (
    Actor,
    build_valid_key_condition,
    find_model,
    make_access_key_expired_error,
)
from core.requests.pages import ListPage, decode_page_cursor, read_query_page
from core.requests.timestamps import format_rfc3339

MAX_DATA_BYTES = 16 << 10
"""Maximum size of the stored data of a change, in bytes of UTF-8.

Of larger data only the field names and the size are stored.
"""
_AT_ONCE = 1000
"""Maximum number of rows whose ids may be ordered differently from their times, since the changes
were made at the same moment.
"""
_BEHIND_ALL = 2**62
"""A number above every id."""


@dataclass(frozen=True)
class AuditQuery:
    """Query of the audit trail: filter, order and page.

    Attributes:
        model: id or name; an id also finds a deleted model.
        action: an action such as `alias.set`.
        since: seconds since 1970.
        newest_first: newest rows first; otherwise the oldest.
    """

    model: str | None = None
    action: str | None = None
    since: float | None = None
    newest_first: bool = False


ALL = AuditQuery()
LOG_OUT = "session.end"


@dataclass(frozen=True)
class AuditedChange:
    """A change as the audit trail records it: action, object and details.

    Attributes:
        action: noun and verb, such as `model.create`.
        object: id of the changed object.
        data: facts about the change that are worth keeping; never a secret.
        model: id of the model concerned.
    """

    action: str
    object: str
    data: AuditData
    model: str | None = None


def record_audit_entry(session: Session, actor: Actor, entry: AuditedChange, now: float) -> None:
    """Add an entry to the audit trail, in the caller's transaction.

    Args:
        now: seconds since 1970 by the database's clock.

    Raises:
        NotAuthenticated: the key was revoked or has expired while the request was under way.
    """
    data = entry.data
    size = len(json.dumps(data, ensure_ascii=False, default=str).encode())
    # A recipe patch alone may be four times as large, and a page of the trail has many rows.
    if size > MAX_DATA_BYTES:
        data = {"left_out": sorted(data)[:20], "bytes": size}
    row = {
        "at": now,
        "owner_id": actor.owner_id,
        "actor": actor.key_id,
        "action": entry.action,
        "object": entry.object,
        "data": data,
        "model_id": entry.model,
    }
    # A session can be ended after its key has ended, and without authentication there is no key.
    if entry.action == LOG_OUT or actor.key_id is None:
        session.add(AuditEntry(**row))
    elif not _add_audit_row_if_access_key_valid(
        session, row, build_valid_key_condition(actor.key_id, now)
    ):
        raise make_access_key_expired_error()


def _add_audit_row_if_access_key_valid(
    session: Session, row: dict[str, Any], is_valid: ColumnElement[bool]
) -> bool:
    """Add an audit entry if the caller's key is valid, in one statement; return False if it is not."""
    values = [literal(value, AuditEntry.__table__.c[name].type) for name, value in row.items()]
    with_key = select(*values).select_from(AccessKey).where(is_valid)
    added = insert(AuditEntry).from_select(list(row), with_key).returning(AuditEntry.id)
    return session.execute(added).first() is not None


def list_audit(
    db: Database, actor: Actor, *, limit: int, cursor: str | None, wanted: AuditQuery = ALL
) -> AuditPage:
    """Return a page of the audit trail, of all owners that the caller sees.

    Raises:
        NotFound: there is no model of that name.
    """
    with db.read() as session:
        query = select(AuditEntry).where(
            actor.build_visible_condition(AuditEntry.owner_id),
            *_build_audit_conditions(session, actor, wanted),
        )
        if wanted.action is not None:
            query = _filter_audit_by_action(
                session, query, wanted.action, cursor, newest_first=wanted.newest_first
            )
        rows: ListPage[AuditEntry] = read_query_page(
            session, query, AuditEntry.id, limit, cursor, descending=wanted.newest_first
        )
        return {
            "items": [_audit_row_to_json(row) for row in rows.rows],
            "next_cursor": rows.next_cursor,
        }


def find_names_of_audited_ids(
    db: Database, actor: Actor, rows: Sequence[AuditOut]
) -> dict[str, str]:
    """Return display names by id for the audit trail: keys with their owners, and models."""
    keys, models = (
        {row["key"] for row in rows if row["key"]},
        {row["model"] for row in rows if row["model"]},
    )
    with db.read() as session:
        of_keys = select(AccessKey.id, AccessKey.name, Owner.name).join(
            Owner, Owner.id == AccessKey.owner_id
        )
        names_by_id = {
            id_: f"{key} of {owner}"
            for id_, key, owner in session.execute(of_keys.where(AccessKey.id.in_(keys)))
        }
        of_models = select(Model.id, Model.name).where(
            Model.id.in_(models), actor.build_visible_condition(Model.owner_id)
        )
        return names_by_id | {id_: name for id_, name in session.execute(of_models)}


def _filter_audit_by_action(
    session: Session, query: Select[Any], action: str, cursor: str | None, *, newest_first: bool
) -> Select[Any]:
    """Restrict an audit query to one action, in an order that only the index on actions provides.

    With a plain equality, PostgreSQL would scan all rows by id, expecting many of them to match.
    """
    if session.get_bind().dialect.name != "postgresql":
        return query.where(AuditEntry.action == action)
    after = None if cursor is None else int(decode_page_cursor(cursor, int))
    action_and_id = tuple_(AuditEntry.action, AuditEntry.id)
    if newest_first:
        last = _BEHIND_ALL if after is None else after - 1
        return query.where(
            action_and_id <= tuple_(action, last), AuditEntry.action >= action
        ).order_by(AuditEntry.action.desc())
    first = 0 if after is None else after + 1
    return query.where(
        action_and_id >= tuple_(action, first), AuditEntry.action <= action
    ).order_by(AuditEntry.action)


def _build_audit_conditions(
    session: Session, actor: Actor, audit_query: AuditQuery
) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if audit_query.model is not None:
        # An id is not looked up, so that the trail of a deleted model can still be read.
        by_id = is_id(audit_query.model, "mdl")
        conditions.append(
            AuditEntry.model_id
            == (audit_query.model if by_id else find_model(session, actor, audit_query.model).id)
        )
    if audit_query.since is not None:
        # Pages are ordered by id. Without a lower bound for the id, rows older than `since` would
        # be scanned one by one.
        early = (
            select(AuditEntry.id)
            .where(AuditEntry.at >= audit_query.since)
            .order_by(AuditEntry.at, AuditEntry.id)
        )
        first = session.scalar(select(func.min(early.limit(_AT_ONCE).subquery().c.id)))
        conditions += [AuditEntry.at >= audit_query.since, AuditEntry.id >= (first or _BEHIND_ALL)]
    return conditions


def _audit_row_to_json(row: AuditEntry) -> AuditOut:
    return {
        "id": row.id,
        "at": format_rfc3339(row.at),
        "owner": row.owner_id,
        "key": row.actor,
        "action": row.action,
        "object": row.object,
        "model": row.model_id,
        "data": row.data,
    }
