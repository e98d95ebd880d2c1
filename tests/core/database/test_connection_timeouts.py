"""Timeouts for a PostgreSQL server that accepts connections and never answers."""

import asyncio
from collections.abc import Iterator

import pytest
from fault_proxy import FaultProxy
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import OperationalError

from core.database import migrate
from core.database.connection_timeouts import TimeLimitedPostgresqlConnection
from core.database.polling import PollingDatabaseReads
from core.database.session import SILENCE_S, STATEMENT_S, Database, is_database_outage
from core.errors import Unavailable


@pytest.fixture
def relay(postgres_url: str) -> Iterator[FaultProxy]:
    made = FaultProxy(make_url(postgres_url).port or 5432)
    yield made
    made.close()


@pytest.fixture
def relayed(postgres_url: str, relay: FaultProxy) -> str:
    return make_url(postgres_url).set(port=relay.port).render_as_string(hide_password=False)


def shorten_wait_limit(connection: Connection) -> None:
    """Shorten the time that a single connection waits for an answer."""
    driver = connection.connection.driver_connection
    assert (
        isinstance(driver, TimeLimitedPostgresqlConnection)
        and driver.wait_limit_s == STATEMENT_S + SILENCE_S
    )
    driver.wait_limit_s = 0.2


def test_a_statement_that_gets_no_answer_ends_as_an_outage_and_the_next_one_works(
    relay: FaultProxy, relayed: str
) -> None:
    db = Database(relayed)
    with pytest.raises(OperationalError) as error, db.read() as session:
        session.execute(text("SELECT 1"))
        shorten_wait_limit(session.connection())
        relay.fault("silent")
        session.execute(text("SELECT 2"))
    assert is_database_outage(error.value)
    relay.heal()
    with db.read() as session:
        assert (
            session.execute(text("SELECT 3")).scalar_one() == 3
        )  # not the late answer of the other connection
    db.close()


def test_a_migration_may_take_longer_than_a_statement_and_later_statements_may_not(
    postgres_url: str,
) -> None:
    db = Database(postgres_url, statement_s=0.2)
    sleep = text("SELECT pg_sleep(0.6)")
    with migrate.begin_migration_transaction(db) as connection:
        connection.execute(sleep)
    with pytest.raises(OperationalError), db.read() as session:
        session.execute(sleep)
    db.close()


@pytest.mark.slow
def test_an_idle_connection_that_fell_silent_is_found_out(relay: FaultProxy, relayed: str) -> None:
    db = Database(relayed)
    with db.engine.connect() as connection:
        shorten_wait_limit(connection)
    relay.fault("silent")
    with pytest.raises(OperationalError) as error:
        db.check_connection()
    assert is_database_outage(error.value)
    db.close()


def test_a_statement_that_fails_for_another_reason_keeps_its_connection(relayed: str) -> None:
    db = Database(relayed)
    with db.engine.connect() as connection:
        before = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        connection.rollback()
        with pytest.raises(Exception, match="statement timeout"):
            connection.execute(text("SET LOCAL statement_timeout = 50; SELECT pg_sleep(5)"))
        connection.rollback()
        assert connection.execute(text("SELECT pg_backend_pid()")).scalar_one() == before
    db.close()


def test_a_poll_of_a_silent_database_is_unavailable_in_time(
    relay: FaultProxy, relayed: str
) -> None:
    async def poll_silent_database() -> None:
        reads = PollingDatabaseReads(relayed, timeout_s=1.0)
        try:
            with pytest.raises(Unavailable):  # there is no table; the connection is open afterwards
                await reads.find_job("job_1")
            relay.fault("silent")
            with pytest.raises(Unavailable):
                await reads.find_job("job_1")
        finally:
            await reads.close()

    asyncio.run(poll_silent_database())
