"""Numbering of an owner's events: in the order of commits, even with concurrent writers."""

import threading

import pytest
from sqlalchemy import select

from core.contract.responses.owner_event import AliasMoved
from core.database import owner_events
from core.database.session import Database
from core.database.tables import Model, Owner, OwnerEvent
from tests.core.rows import make_model_row

pytestmark = pytest.mark.both_databases

MOVED: AliasMoved = {"alias": "mine", "version": 1, "previous": None, "cause": "set"}


def add_model(db: Database) -> Model:
    with db.write() as session:
        session.add(Owner(id="own_1", name="one", created_at=0.0))
        session.flush()
        model = make_model_row("mdl_1", "own_1")
        session.add(model)
    return model


def list_event_ids(db: Database) -> list[int]:
    with db.read() as session:
        return list(session.scalars(select(OwnerEvent.id).order_by(OwnerEvent.id)))


def test_a_reader_that_goes_on_after_the_last_id_misses_no_event(database: Database) -> None:
    model, seen = add_model(database), 0
    begun, told, over = threading.Barrier(4), 20, threading.Event()

    def record_events() -> None:
        begun.wait()
        for _ in range(told):
            with database.write() as session:
                owner_events.collect_owner_and_webhook_events_of_alias(session, model, MOVED, 1.0)

    def read_events_to_end() -> None:
        nonlocal seen
        last = 0
        begun.wait()
        while True:
            done = over.is_set()
            with database.read() as session:
                query = select(OwnerEvent.id).where(OwnerEvent.id > last).order_by(OwnerEvent.id)
                found = list(session.scalars(query))
            seen, last = seen + len(found), found[-1] if found else last
            if done:
                return

    writers = [threading.Thread(target=record_events) for _ in range(3)]
    reader = threading.Thread(target=read_events_to_end)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    reader.join()
    assert seen == len(list_event_ids(database)) == 3 * told


def test_of_two_open_transactions_the_one_that_commits_first_has_the_lower_id(
    database: Database,
) -> None:
    if database.dialect == "sqlite":
        return  # its writers are alone from their first statement
    model = add_model(database)
    with database.write() as first:
        owner_events.collect_owner_and_webhook_events_of_alias(
            first, model, {**MOVED, "alias": "told-first"}, 1.0
        )
        with database.write() as second:
            owner_events.collect_owner_and_webhook_events_of_alias(
                second, model, {**MOVED, "alias": "committed-first"}, 1.0
            )
    with database.read() as session:
        found = session.scalars(select(OwnerEvent).order_by(OwnerEvent.id)).all()
    assert [event.data["alias"] for event in found] == ["committed-first", "told-first"]


def test_telling_waits_for_no_row_that_another_transaction_holds(database: Database) -> None:
    if database.dialect == "sqlite":
        return  # its writers are alone from their first statement
    model = add_model(database)
    with database.write() as other:
        other.get_one(Model, model.id, with_for_update=True)
        other.get_one(Owner, model.owner_id, with_for_update=True)
        with database.write() as session:
            owner_events.collect_owner_and_webhook_events_of_alias(session, model, MOVED, 1.0)
        assert len(list_event_ids(database)) == 1


def test_a_transaction_that_fails_tells_nothing(database: Database) -> None:
    model = add_model(database)
    try:
        with database.write() as session:
            owner_events.collect_owner_and_webhook_events_of_alias(session, model, MOVED, 1.0)
            raise RuntimeError("no")
    except RuntimeError:
        pass
    assert list_event_ids(database) == []
