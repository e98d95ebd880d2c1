"""Migration 0024 on events from before it: each is there and found by its type."""

import asyncio

import pytest
from sqlalchemy import inspect, text

from core.db import migrate
from core.db.polling import About, OwnerEventRow, PollingReads
from core.db.session import Database

WRITTEN = [
    (id_, "alias" if id_ % 7 == 0 else "version" if id_ % 5 == 0 else "job")
    for id_ in range(1, 101)
]


@pytest.fixture
def before(empty: Database) -> Database:
    """Events with the schema from before."""
    migrate.upgrade(empty, "0023")
    statement = text(
        "INSERT INTO owner_events (id, owner_id, model_id, job_id, type, data, at)"
        " VALUES (:id, 'own_1', 'mdl_1', NULL, :type, '{}', 1.5)"
    )
    with empty.write() as session:
        session.execute(statement, [{"id": id_, "type": type_} for id_, type_ in WRITTEN])
    return empty


def read(db: Database, *types: str) -> list[OwnerEventRow]:
    async def run() -> list[OwnerEventRow]:
        reads = PollingReads(db.url)
        await reads.start()
        try:
            return await reads.owner_events(About(owner_id="own_1"), 0, 200, types)
        finally:
            await reads.close()

    return asyncio.run(run())


def test_events_from_before_are_found_by_their_type(before: Database) -> None:
    every, former = read(before), read_indexes(before)
    assert [(event.id, event.type) for event in every] == WRITTEN
    migrate.upgrade(before, "0024")
    assert read(before) == every
    assert [event.id for event in read(before, "alias")] == list(range(7, 101, 7))
    assert len(read_indexes(before) - former) == 3 and len(former - read_indexes(before)) == 2


def read_indexes(db: Database) -> set[str]:
    return {str(index["name"]) for index in inspect(db.engine).get_indexes("owner_events")}
