"""Migration 0024 on events from before it: each is there and found by its type, both ways."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from core.db import migrate
from core.db.polling import About, OwnerEventRow
from core.db.session import Database
from tests.core.db.test_polling import with_reads
from tests.older_data import DIALECTS, empty

BEFORE_IT = "0023"
WRITTEN = [(id_, "alias" if id_ % 7 == 0 else "version" if id_ % 5 == 0 else "job") for id_ in range(1, 101)]


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Events with the schema from before."""
    with empty(request.param, tmp_path) as db:
        migrate.upgrade(db, BEFORE_IT)
        with db.write() as session:
            for id_, type_ in WRITTEN:
                session.execute(
                    text(
                        "INSERT INTO owner_events (id, owner_id, model_id, job_id, type, data, at)"
                        " VALUES (:id, 'own_1', 'mdl_1', NULL, :type, '{}', 1.5)"
                    ),
                    {"id": id_, "type": type_},
                )
        yield db


def read(db: Database, *types: str) -> list[OwnerEventRow]:
    return with_reads(db, lambda reads: reads.owner_events(About(owner_id="own_1"), 0, 200, types))


def indexes(db: Database) -> set[str]:
    return {str(index["name"]) for index in inspect(db.engine).get_indexes("owner_events")}


def test_events_from_before_are_found_by_their_type_both_ways(before: Database) -> None:
    every, former = read(before), indexes(before)
    assert [(event.id, event.type) for event in every] == WRITTEN
    migrate.upgrade(before, "0024")
    assert read(before) == every
    assert [event.id for event in read(before, "alias")] == [
        id_ for id_, type_ in WRITTEN if type_ == "alias"
    ]
    assert len(indexes(before) - former) == 3 and len(former - indexes(before)) == 2
    migrate.downgrade(before, BEFORE_IT)
    assert read(before) == every and indexes(before) == former
