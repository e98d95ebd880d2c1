"""Lists in pages: `{"items": […], "next_cursor": …}`, stable while rows are added.

A page is ordered by one unique column, and its cursor is the last value seen, encoded so that clients
treat it as opaque. It ends early where its rows hold many bytes: the rows are weighed before any is read.
"""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import JSON, ColumnElement, Row, Select, Text, cast, func
from sqlalchemy.orm import InstrumentedAttribute, Session

from core.errors import Invalid

MAX_LIMIT = 200
DEFAULT_LIMIT = 50
MAX_PAGE_BYTES = 4 << 20
"""Bytes that the rows of a page may hold in columns of any length; one row is always shown."""
_MAX_INT = 2**63 - 1


def encode_cursor(value: int | str) -> str:
    """The cursor that continues after `value`."""
    return base64.urlsafe_b64encode(json.dumps([value]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, kind: type[int] | type[str]) -> int | str:
    """The value a cursor stands for.

    Raises:
        Invalid: not a cursor of such a list.
    """
    wrong = _unknown_cursor()
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, UnicodeError, ValueError, RecursionError):
        raise wrong from None
    if not isinstance(values, list) or len(values) != 1 or type(values[0]) is not kind:
        raise wrong
    value = values[0]
    if isinstance(value, int):
        if abs(value) > _MAX_INT:
            raise wrong
        return value
    if "\0" in value or not value.isascii():
        raise wrong
    return str(value)


def page_of(items: Sequence[dict[str, Any]], key: str, limit: int, cursor: str | None) -> dict[str, Any]:
    """One page of a list that is in memory, in its order; the cursor is the last item's `key`, unique text.

    Raises:
        Invalid: a limit out of range or a foreign cursor.
    """
    _check_limit(limit)
    start = 0
    if cursor is not None:
        last = decode_cursor(cursor, str)
        found = [place for place, item in enumerate(items) if item[key] == last]
        if not found:
            raise _unknown_cursor()
        start = found[0] + 1
    shown = items[start : start + limit]
    more = len(items) > start + limit
    return {"items": list(shown), "next_cursor": encode_cursor(shown[-1][key]) if more else None}


def page(
    session: Session,
    query: Select[Any],
    column: InstrumentedAttribute[Any],
    limit: int,
    cursor: str | None,
    show: Callable[[Row[Any]], dict[str, Any]],
    *,
    descending: bool = False,
) -> dict[str, Any]:
    """One page of `query`.

    Args:
        column: unique; orders the list and carries the cursor. It must be the first entity's or one that
            `query` selects.
        limit: rows at most, 1 to `MAX_LIMIT`; fewer where they hold more than `MAX_PAGE_BYTES`.
        show: turns a row (always a `Row`, so `row[0]` is its first entity) into its JSON form.

    Raises:
        Invalid: a limit out of range or a foreign cursor.
    """
    _check_limit(limit)
    if cursor is not None:
        after = decode_cursor(cursor, column.type.python_type)
        query = query.where(column < after if descending else column > after)
    order = column.desc() if descending else column.asc()
    fitting = _fitting(session, query.order_by(order), column, limit)
    ordered = query.add_columns(column.label("page_key")).order_by(order)
    rows = session.execute(ordered.limit(fitting + 1)).all()
    more = len(rows) > fitting
    rows = rows[:fitting]
    return {
        "items": [show(row) for row in rows],
        "next_cursor": encode_cursor(rows[-1].page_key) if more else None,
    }


def _fitting(session: Session, ordered: Select[Any], column: InstrumentedAttribute[Any], limit: int) -> int:
    """How many of the first `limit` rows hold no more than a page may, at least one; none of them is loaded."""
    weight = _weight(column)
    if weight is None:
        return limit
    held = 0
    for count, (weight_of_row,) in enumerate(session.execute(ordered.with_only_columns(weight).limit(limit))):
        held += weight_of_row
        if held > MAX_PAGE_BYTES and count:
            return count
    return limit


def _weight(column: InstrumentedAttribute[Any]) -> ColumnElement[int] | None:
    """The bytes of a row in columns of any length (JSON is stored as ASCII); None for a table without such."""
    sizes = [
        func.coalesce(func.length(cast(one, Text)), 0)
        for one in column.class_.__table__.columns
        if isinstance(one.type, JSON | Text)
    ]
    return sum(sizes[1:], sizes[0]) if sizes else None


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise Invalid(
            f"limit must be 1 to {MAX_LIMIT}.", fields=[{"field": "limit", "message": f"1 to {MAX_LIMIT}"}]
        )


def _unknown_cursor() -> Invalid:
    return Invalid(
        "The cursor is not one that this list has given out.",
        fields=[{"field": "cursor", "message": "unknown cursor"}],
    )
