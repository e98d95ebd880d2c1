"""Idempotency keys in the database: replay, mismatch, in flight, and what a dead process leaves."""

import threading

import pytest
from sqlalchemy import update

from core.database.session import Database
from core.database.tables import IdempotencyRecord
from core.errors import IdempotencyInFlight, IdempotencyMismatch
from core.requests import idempotency
from core.requests.actor import Actor

ROUTE = "POST /v1/things"
# Rows are written by statements of each dialect.
pytestmark = pytest.mark.both_databases


def make_request(mark: str = "a", key: str = "k") -> idempotency.IdempotentRequestIdentity:
    return idempotency.IdempotentRequestIdentity(
        ROUTE, key, idempotency.digest_request_for_idempotency(mark)
    )


def store_response(
    database: Database, actor: Actor, asked: idempotency.IdempotentRequestIdentity
) -> None:
    with database.write() as session:
        now = database.now(session)
        response = idempotency.IdempotentResponse(201, {"Location": "/x"}, {"id": 1})
        idempotency.store_idempotent_response(session, actor, asked, response, now)


def find_stored_response(
    database: Database, actor: Actor, asked: idempotency.IdempotentRequestIdentity
) -> idempotency.ReplayedResponse | None:
    with database.write() as session:
        return idempotency.find_earlier_response(session, actor, asked)


def age_responses(database: Database, seconds: float) -> None:
    with database.write() as session:
        session.execute(
            update(IdempotencyRecord).values(created_at=IdempotencyRecord.created_at - seconds)
        )


def test_the_first_answer_is_replayed(database: Database, actor: Actor) -> None:
    assert find_stored_response(database, actor, make_request()) is None
    store_response(database, actor, make_request())
    found = find_stored_response(database, actor, make_request())
    assert found is not None
    assert (found.status, found.headers, found.body) == (201, {"Location": "/x"}, {"id": 1})


def test_another_request_under_the_key_is_refused(database: Database, actor: Actor) -> None:
    store_response(database, actor, make_request("a"))
    with pytest.raises(IdempotencyMismatch):
        find_stored_response(database, actor, make_request("b"))


def test_an_answer_is_forgotten_after_a_day(database: Database, actor: Actor) -> None:
    store_response(database, actor, make_request("a"))
    age_responses(database, IdempotencyRecord.KEPT_S + 1)
    assert find_stored_response(database, actor, make_request("b")) is None


def test_a_stream_gets_the_stored_answer_until_it_is_forgotten(
    database: Database, actor: Actor
) -> None:
    store_response(database, actor, make_request())
    found = idempotency.begin_idempotent_request(database, actor, make_request())
    assert found is not None and found.body == {"id": 1}
    age_responses(database, IdempotencyRecord.KEPT_S + 1)
    assert idempotency.begin_idempotent_request(database, actor, make_request()) is None
    with pytest.raises(IdempotencyInFlight):
        idempotency.begin_idempotent_request(database, actor, make_request())


def test_of_two_requests_at_once_the_second_cannot_store_its_answer(
    database: Database, actor: Actor
) -> None:
    store_response(database, actor, make_request())
    with pytest.raises(IdempotencyInFlight):  # it had found no answer before
        store_response(database, actor, make_request())


def test_one_of_two_streams_at_once_is_in_flight(database: Database, actor: Actor) -> None:
    first = make_request()
    assert idempotency.begin_idempotent_request(database, actor, first) is None
    with pytest.raises(IdempotencyInFlight):
        idempotency.begin_idempotent_request(database, actor, make_request())
    idempotency.release_idempotency_key(database, actor, make_request())  # not ours: stays
    with pytest.raises(IdempotencyInFlight):
        idempotency.begin_idempotent_request(database, actor, make_request())
    idempotency.release_idempotency_key(database, actor, first)
    assert idempotency.begin_idempotent_request(database, actor, make_request()) is None


def test_many_streams_at_once_have_one_winner(database: Database, actor: Actor) -> None:
    won: list[int] = []
    barrier = threading.Barrier(6)

    def begin_request(number: int) -> None:
        barrier.wait()
        try:
            if idempotency.begin_idempotent_request(database, actor, make_request()) is None:
                won.append(number)
        except IdempotencyInFlight:
            pass

    threads = [threading.Thread(target=begin_request, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_a_stream_of_a_dead_process_is_taken_over_and_cannot_answer_any_more(
    database: Database, actor: Actor
) -> None:
    dead, alive = make_request(), make_request()
    idempotency.begin_idempotent_request(database, actor, dead)
    age_responses(database, idempotency.STALE_S + 1)
    assert idempotency.begin_idempotent_request(database, actor, alive) is None
    with pytest.raises(IdempotencyInFlight):
        store_response(database, actor, dead)
    store_response(database, actor, alive)


def test_a_renewed_stream_is_not_taken_over(database: Database, actor: Actor) -> None:
    first = make_request()
    idempotency.begin_idempotent_request(database, actor, first)
    age_responses(database, idempotency.STALE_S + 1)
    idempotency.renew_idempotent_request(database, actor, first)
    with pytest.raises(IdempotencyInFlight):
        idempotency.begin_idempotent_request(database, actor, make_request())


def test_parts_of_a_fingerprint_cannot_run_into_each_other() -> None:
    marks = [
        idempotency.digest_request_for_idempotency("ab", "c"),
        idempotency.digest_request_for_idempotency("a", "bc"),
        idempotency.digest_request_for_idempotency("abc"),
        idempotency.digest_request_for_idempotency("ab", "c", None),
        idempotency.digest_request_for_idempotency("ab", "c", ""),
    ]
    assert len(set(marks)) == len(marks)
