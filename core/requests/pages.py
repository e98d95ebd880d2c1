"""Pagination of lists, stable while rows are added, by cursors.

A page is ordered by one unique column. Its cursor is the last value of that column, encoded so that
clients treat it as opaque. A page ends early if its rows hold many bytes; their size is computed
before any row is read.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import JSON, ColumnElement, Select, Text, cast, func
from sqlalchemy.orm import InstrumentedAttribute, Session

from core.errors import Invalid

MAX_LIMIT = 200
DEFAULT_LIMIT = 50
MAX_PAGE_BYTES = 4 << 20
"""Maximum bytes of a page's rows in columns of variable length; a page always has at least one row.
"""
# The largest value of an integer column; databases fail on a larger one.
_MAX_INT = 2**63 - 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """A page of a list: its rows, and the cursor of the next page; None for the last page."""

    rows: Sequence[T]
    next_cursor: str | None


def encode_page_cursor(value: int | str) -> str:
    """Encode a value as the cursor of the page that begins after it."""
    return base64.urlsafe_b64encode(json.dumps([value]).encode()).decode().rstrip("=")


def decode_page_cursor(cursor: str, kind: type[int] | type[str]) -> int | str:
    """Decode a page's cursor to the value after which the page begins.

    Args:
        kind: expected type of the value.

    Raises:
        Invalid: the cursor was not made by such a list.
    """
    wrong = _build_invalid_cursor_error()
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    # RecursionError: a forged cursor may be deeply nested JSON.
    except (binascii.Error, UnicodeError, ValueError, RecursionError):
        raise wrong from None
    # Not isinstance: True is an int and would become the cursor 1.
    if not isinstance(values, list) or len(values) != 1 or type(values[0]) is not kind:
        raise wrong
    value = values[0]
    if isinstance(value, int):
        if abs(value) > _MAX_INT:
            raise wrong
        return value
    # PostgreSQL refuses NUL in a text, and no id or name in a cursor is beyond ASCII.
    if "\0" in value or not value.isascii():
        raise wrong
    return str(value)


def cut_list_page_from_mapping(
    items: Mapping[str, T], limit: int, cursor: str | None
) -> ListPage[T]:
    """Return one page of a mapping in memory, in its order; the cursor is the last item's key.

    Raises:
        Invalid: the limit is out of range, or the cursor belongs to another list.
    """
    _check_page_limit(limit)
    start, names = 0, list(items)
    if cursor is not None:
        last = decode_page_cursor(cursor, str)
        if last not in names:
            raise _build_invalid_cursor_error()
        start = names.index(str(last)) + 1
    page_names = names[start : start + limit]
    more = len(names) > start + limit
    return ListPage(
        [items[name] for name in page_names], encode_page_cursor(page_names[-1]) if more else None
    )


def read_query_page(
    session: Session,
    query: Select[Any],
    column: InstrumentedAttribute[Any],
    limit: int,
    cursor: str | None,
    *,
    descending: bool = False,
) -> ListPage[Any]:
    """Read one page of a database query's rows, with the cursor of the next page.

    Args:
        column: unique column that orders the list and carries the cursor. It must belong to the
            first entity or be selected by `query`.
        limit: maximum number of rows, 1 to `MAX_LIMIT`; a page has fewer if they hold more than
            `MAX_PAGE_BYTES`.

    Returns:
        The first entity of each row, or the whole rows if the query selects several.

    Raises:
        Invalid: the limit is out of range, or the cursor belongs to another list.
    """
    _check_page_limit(limit)
    if cursor is not None:
        after = decode_page_cursor(cursor, column.type.python_type)
        query = query.where(column < after if descending else column > after)
    order = column.desc() if descending else column.asc()
    fitting = _count_rows_fitting_page(session, query.order_by(order), column, limit)
    ordered = query.add_columns(column.label("page_key")).order_by(order)
    # One row more than the page shows tells if there is a next page.
    rows = session.execute(ordered.limit(fitting + 1)).all()
    more = len(rows) > fitting
    rows = rows[:fitting]
    alone = len(query.column_descriptions) == 1
    return ListPage(
        [row[0] if alone else row for row in rows],
        encode_page_cursor(rows[-1].page_key) if more else None,
    )


def _count_rows_fitting_page(
    session: Session, ordered: Select[Any], column: InstrumentedAttribute[Any], limit: int
) -> int:
    """Return how many of the first `limit` rows fit into a page by their bytes, at least one.

    No row is loaded.
    """
    weight = _build_row_size_expression(column)
    if weight is None:
        return limit
    total = 0
    for count, (weight_of_row,) in enumerate(
        session.execute(ordered.with_only_columns(weight).limit(limit))
    ):
        total += weight_of_row
        if total > MAX_PAGE_BYTES and count:
            return count
    return limit


def _build_row_size_expression(column: InstrumentedAttribute[Any]) -> ColumnElement[int] | None:
    """Return the SQL expression for a row's bytes in columns of variable length.

    Return None if there are none. JSON is stored as ASCII, so its characters are its bytes.
    """
    sizes = [
        func.coalesce(func.length(cast(one, Text)), 0)
        for one in column.class_.__table__.columns
        if isinstance(one.type, JSON | Text)
    ]
    return sum(sizes[1:], sizes[0]) if sizes else None


def _check_page_limit(limit: int) -> None:
    """Check that the requested number of rows on a page is in its range."""
    if not 1 <= limit <= MAX_LIMIT:
        raise Invalid(
            f"limit must be 1 to {MAX_LIMIT}.",
            fields=[{"field": "limit", "message": f"1 to {MAX_LIMIT}"}],
        )


def _build_invalid_cursor_error() -> Invalid:
    return Invalid(
        "The cursor is not one that this list has given out.",
        fields=[{"field": "cursor", "message": "unknown cursor"}],
    )
