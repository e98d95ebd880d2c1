"""Transactions: all or nothing, writers one after the other, one clock."""

import sqlite3
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from core.database.session import CACHE_KIB, Database, is_database_outage
from core.database.tables import Model, Owner


def test_an_exception_rolls_back_everything(filled: Database) -> None:
    with pytest.raises(ZeroDivisionError), filled.write() as session:
        session.add(Owner(id="own_2", name="other", created_at=1.0))
        session.flush()
        raise ZeroDivisionError
    with filled.read() as session:
        assert session.get(Owner, "own_2") is None


@pytest.mark.both_databases
def test_an_error_does_not_quote_the_values_of_its_statement(filled: Database) -> None:
    with pytest.raises(DBAPIError) as failed, filled.read() as session:
        session.execute(
            text("SELECT nowhere FROM owners WHERE name = :name"), {"name": "secret-value"}
        )
    assert "nowhere" in str(failed.value)
    assert "secret-value" not in str(failed.value)


@pytest.mark.both_databases
def test_a_read_never_writes(filled: Database) -> None:
    with filled.read() as session:
        session.get_one(Owner, "own_1").name = "changed"
        session.flush()
    with filled.read() as session:
        assert session.get_one(Owner, "own_1").name == "team"


@pytest.mark.both_databases
def test_writers_that_count_lose_no_step(filled: Database) -> None:
    def increment_next_task() -> None:
        for _ in range(20):
            with filled.write() as session:
                session.get_one(Model, "mdl_1", with_for_update=True).next_task += 1

    threads = [threading.Thread(target=increment_next_task) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with filled.read() as session:
        assert session.get_one(Model, "mdl_1").next_task == 61


@pytest.mark.both_databases
def test_the_clock_is_the_time_and_moves_inside_a_transaction(database: Database) -> None:
    before = time.time()
    with database.read() as session:
        first = database.now(session)
        time.sleep(0.02)
        assert database.now(session) > first
        assert before - 1 < first < time.time() + 1


@pytest.mark.both_databases
def test_a_missing_value_of_a_json_column_is_null(filled: Database) -> None:
    with filled.read() as session:
        query = text("SELECT count(*) FROM jobs WHERE snapshot IS NULL AND error IS NULL")
        assert session.execute(query).scalar_one() == 1


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a file"):
        Database("sqlite:///:memory:")


def test_a_server_that_is_away_is_an_outage() -> None:
    db = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(Exception, match="refused") as error:
        db.check_connection()
    assert is_database_outage(error.value)


@pytest.mark.both_databases
@pytest.mark.parametrize(
    "statement", ["SELECT 1 FROM nowhere", "SELECT nothing FROM jobs", "SELEKT 1"]
)
def test_a_wrong_statement_is_no_outage(database: Database, statement: str) -> None:
    with pytest.raises(DBAPIError) as error, database.read() as session:
        session.execute(text(statement))
    assert not is_database_outage(error.value)


def test_a_file_that_cannot_be_opened_is_an_outage(tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path}/sub/database")
    (tmp_path / "sub" / "database").mkdir()
    with pytest.raises(DBAPIError) as error:
        db.check_connection()
    assert is_database_outage(error.value)


def test_first_connections_at_the_same_moment_wait_for_each_other(tmp_path: Path) -> None:
    refused: list[BaseException] = []

    def connect_together(url: str, together: threading.Barrier) -> None:
        database = Database(url)
        together.wait()
        try:
            database.check_connection()
        except OperationalError as error:
            refused.append(error)
        database.close()

    for number in range(20):
        together = threading.Barrier(8)
        arguments = (f"sqlite:///{tmp_path}/{number}.db", together)
        threads = [threading.Thread(target=connect_together, args=arguments) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert refused == []


def test_a_lock_that_is_not_given_is_an_outage(tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path}/database")
    with db.write():
        other = sqlite3.connect(tmp_path / "database", timeout=0)
        with pytest.raises(sqlite3.OperationalError) as error:
            other.execute("BEGIN IMMEDIATE")
        other.close()
    assert is_database_outage(OperationalError("BEGIN", None, error.value))
    db.close()


def test_a_connection_keeps_the_pages_that_the_figures_of_many_versions_lie_on(
    tmp_path: Path,
) -> None:
    db = Database(f"sqlite:///{tmp_path}/database")
    with db.read() as session:
        assert session.execute(text("PRAGMA cache_size")).scalar_one() == -CACHE_KIB
    db.close()
