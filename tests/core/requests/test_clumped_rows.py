"""Rows of one kind that lie together, behind many of another, are found in an index of
their own.
"""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ColumnElement, insert, select, text

from core.database.polling import OwnerEventFilter, build_owner_events_query
from core.database.session import Database
from core.database.tables import AuditEntry, Owner, OwnerEvent
from core.requests import audit
from core.requests.actor import Actor
from tests.core.rows import make_model_row

MANY = 8_000
ADMIN = Actor(key_id="key_1", owner_id="own_1", scope="admin")


def is_sqlite(database: Database) -> bool:
    return database.engine.dialect.name == "sqlite"


def list_row_ids(
    database: Database, table: type[OwnerEvent | AuditEntry], *where: ColumnElement[bool]
) -> list[int]:
    with database.read() as session:
        return list(session.scalars(select(table.id).where(*where).order_by(table.id)))


@pytest.fixture(scope="module")
def clumped(new_database: Callable[[], Database]) -> Database:
    """First all events of jobs and all submits, then all of aliases and all publishes."""
    event: dict[str, Any] = {"owner_id": "own_1", "model_id": "mdl_1", "data": {}, "at": 0.0}
    row: dict[str, Any] = {
        "owner_id": "own_1",
        "actor": "key_1",
        "object": "x",
        "data": {},
        "at": 0.0,
    }
    database = new_database()
    with database.write() as session:
        session.add(Owner(id="own_1", name="one", created_at=0.0))
        session.flush()
        session.add(make_model_row("mdl_1", "own_1"))
        session.flush()
        for type_, action in (("job", "task.submit"), ("alias", "version.publish")):
            session.execute(insert(OwnerEvent), [{**event, "type": type_}] * MANY)
            session.execute(insert(AuditEntry), [{**row, "action": action}] * MANY)
    if not is_sqlite(database):
        with database.engine.connect().execution_options(
            isolation_level="AUTOCOMMIT"
        ) as connection:
            connection.execute(text("VACUUM (ANALYZE)"))
    return database


@pytest.mark.slow
@pytest.mark.parametrize(
    "about", [OwnerEventFilter(), OwnerEventFilter("own_1"), OwnerEventFilter("own_1", "mdl_1")]
)
def test_events_of_a_type_are_read_in_the_index_of_types(
    clumped: Database, about: OwnerEventFilter
) -> None:
    mark = "?" if is_sqlite(clumped) else "%s"
    query, values = build_owner_events_query(mark, about, 0, 50, ["alias"])
    explain = (
        "EXPLAIN QUERY PLAN" if is_sqlite(clumped) else "EXPLAIN (ANALYZE, BUFFERS, FORMAT TEXT)"
    )
    with clumped.engine.connect() as connection:
        plan = "\n".join(
            str(row) for row in connection.exec_driver_sql(f"{explain} {query}", values)
        )
        rows = connection.exec_driver_sql(query, values).all()
    assert "type_id" in plan and "pk_owner_events" not in plan and "Rows Removed" not in plan, plan
    assert [row[0] for row in rows] == list_row_ids(
        clumped, OwnerEvent, OwnerEvent.type == "alias"
    )[:50]


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_of_an_action_hold_all_of_its_rows_and_no_other(
    clumped: Database, newest_first: bool
) -> None:
    wanted, seen, cursor = (
        audit.AuditQuery(action="version.publish", newest_first=newest_first),
        list[int](),
        None,
    )
    for _ in range(4):
        page = audit.list_audit(clumped, ADMIN, limit=3, cursor=cursor, wanted=wanted)
        assert {row["action"] for row in page["items"]} == {"version.publish"}
        seen += [row["id"] for row in page["items"]]
        cursor = page["next_cursor"]
    expected = list_row_ids(clumped, AuditEntry, AuditEntry.action == "version.publish")
    assert seen == (expected[::-1] if newest_first else expected)[:12]


def test_the_last_page_of_an_action_is_the_last(clumped: Database) -> None:
    row: dict[str, Any] = {"owner_id": "own_1", "object": "x", "data": {}, "at": 0.0}
    with clumped.write() as session:
        session.execute(insert(AuditEntry), [{**row, "action": "key.create"}] * 2)
    wanted = audit.AuditQuery(action="key.create")
    first = audit.list_audit(clumped, ADMIN, limit=1, cursor=None, wanted=wanted)
    last = audit.list_audit(clumped, ADMIN, limit=1, cursor=first["next_cursor"], wanted=wanted)
    assert [one["items"][0]["id"] for one in (first, last)] == list_row_ids(clumped, AuditEntry)[
        -2:
    ]
    assert last["next_cursor"] is None
