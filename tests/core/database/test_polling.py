"""Reads for polling: everything a poll shows in one query, quickly, and a typed error in
an outage.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import select, text

from core.database.polling import (
    OwnerEventFilter,
    PolledJobEventRow,
    PolledVersionRow,
    PollingDatabaseReads,
)
from core.database.session import Database
from core.database.tables import Alias, Job, Owner, OwnerEvent
from core.errors import Unavailable
from tests.core.rows import make_model_row, make_version_row

pytestmark = pytest.mark.both_databases

T = TypeVar("T")
FISH = f"mdl_{'0' * 26}"


def use_polling_reads(database: Database, use: Callable[[PollingDatabaseReads], Awaitable[T]]) -> T:
    async def prepare_and_use_reads() -> T:
        reads = PollingDatabaseReads(database.url)
        try:
            return await use(reads)
        finally:
            await reads.close()

    return asyncio.run(prepare_and_use_reads())


@pytest.fixture
def with_versions(filled: Database) -> Database:
    """Two published versions and a newer one that waits; the first is in production."""
    with filled.write() as session:
        session.add(Owner(id="own_2", name="others", created_at=1.0))
        for number, status in ((1, "published"), (2, "published"), (3, "held")):
            session.add(make_version_row(f"ver_{number}", "mdl_1", number, status=status))
        session.add(make_model_row(FISH, "own_1", "fish"))
        session.flush()
        session.add(make_version_row("ver_fish", FISH))
        session.add(Alias(model_id="mdl_1", name="production", version=1, updated_at=1.0))
    return filled


def test_a_job_has_everything_that_its_answer_shows(filled: Database) -> None:
    job = use_polling_reads(filled, lambda reads: reads.find_job("job_1"))
    assert job is not None
    assert (job.id, job.owner_id, job.model_id, job.task_id, job.task_number) == (
        "job_1", "own_1", "mdl_1", "tsk_1", 1,
    )  # fmt: skip
    assert (job.state, job.revision, job.attempt, job.version, job.error) == (
        "queued",
        1,
        0,
        None,
        None,
    )
    assert (job.progress, job.recipe) == ({"phase": "train", "step": 2}, {"epochs": 3})
    assert (job.created_at, job.started_at, job.finished_at) == (1.5, None, None)


def test_an_unknown_job_and_key_are_none(filled: Database) -> None:
    assert use_polling_reads(filled, lambda reads: reads.find_job("job_' OR 1=1 --")) is None
    assert use_polling_reads(filled, lambda reads: reads.find_key_by_prefix("nobody")) is None


def test_a_read_sees_what_was_just_committed(filled: Database) -> None:
    async def read_revisions(reads: PollingDatabaseReads) -> list[int]:
        revisions = []
        for revision in (1, 2, 3):
            with filled.write() as session:
                session.get_one(Job, "job_1").revision = revision
            row = await reads.find_job("job_1")
            assert row is not None
            revisions.append(row.revision)
        return revisions

    assert use_polling_reads(filled, read_revisions) == [1, 2, 3]


def test_a_job_that_was_read_before_is_read_with_what_has_changed(filled: Database) -> None:
    async def read_changing_progress(reads: PollingDatabaseReads) -> list[object]:
        found = []
        for step in (2, 2, 3):
            with filled.write() as session:
                session.get_one(Job, "job_1").progress = {"phase": "train", "step": step}
            row = await reads.find_job("job_1")
            assert row is not None
            found.append(row.progress)
        return found

    assert use_polling_reads(filled, read_changing_progress) == [
        {"phase": "train", "step": step} for step in (2, 2, 3)
    ]


def test_events_come_in_order_after_an_id_and_by_type(filled: Database) -> None:
    async def list_events_in_order(reads: PollingDatabaseReads) -> list[list[PolledJobEventRow]]:
        every = await reads.list_job_events("job_1", 0, 100, None)
        return [
            every,
            await reads.list_job_events("job_1", every[1].id, 2, None),
            await reads.list_job_events("job_1", 0, 100, ["state"]),
            await reads.list_job_events("job_1", 0, 100, ["state", "log"]),
        ]

    every, page, some, both = use_polling_reads(filled, list_events_in_order)
    assert [event.data["n"] for event in every] == [0, 1, 2, 3, 4]
    assert page == every[2:4]
    assert [event.data["n"] for event in some] == [1, 3]
    assert both == every


def test_events_of_some_types_come_in_the_order_of_all_and_none_twice(database: Database) -> None:
    rare = {17: "alias", 40: "version", 41: "alias"}
    with database.write() as session:
        session.add_all(
            OwnerEvent(
                owner_id=owner,
                model_id="mdl_1",
                job_id=None,
                type=rare.get(n, "job"),
                data={},
                at=1.0,
            )
            for n in range(50)
            for owner in ("own_1", "own_2")
        )
    with database.read() as session:
        every = session.scalars(select(OwnerEvent).order_by(OwnerEvent.id)).all()
    asked = (None, ("alias",), ("alias", "version"), ("job", "alias", "job"), ("version",) * 600)

    async def check_events_of_types(reads: PollingDatabaseReads) -> None:
        for about in (
            OwnerEventFilter(owner_id="own_1"),
            OwnerEventFilter(model_id="mdl_1"),
            OwnerEventFilter(),
        ):
            of = [event for event in every if about.owner_id in (None, event.owner_id)]
            for types in asked:
                expected = [event.id for event in of if types is None or event.type in types]
                for after, limit in ((0, 100), (0, 3), (of[20].id, 5), (of[-1].id, 5)):
                    found = await reads.read_owner_events(about, after, limit, types)
                    assert [row.id for row in found] == [id_ for id_ in expected if id_ > after][
                        :limit
                    ]
            assert await reads.read_newest_owner_event_id(about) == of[-1].id
        assert await reads.read_newest_owner_event_id(OwnerEventFilter(owner_id="nobody")) == 0

    use_polling_reads(database, check_events_of_types)


def test_a_key_is_found_by_its_prefix(filled: Database) -> None:
    key = use_polling_reads(filled, lambda reads: reads.find_key_by_prefix("abc"))
    assert key is not None
    assert (key.id, key.owner_id, key.hash, key.scope, key.revoked_at) == (
        "key_1",
        "own_1",
        "h",
        "read",
        None,
    )


@pytest.mark.parametrize(
    ("model", "version", "found"),
    [
        ("birds", 1, "ver_1"),
        (FISH, 1, "ver_fish"),
        ("birds", None, "ver_2"),
        ("birds", "production", "ver_1"),
        ("birds", 3, "ver_3"),
        ("birds", 10**17, None),
        ("birds", "staging", None),
        ("ducks", 1, None),
        ("birds' OR 1=1 --", None, None),
    ],
)
def test_a_version_to_predict_is_found_by_number_or_alias_or_as_the_newest(
    with_versions: Database, model: str, version: int | str | None, found: str | None
) -> None:
    row = use_polling_reads(
        with_versions, lambda reads: reads.find_version_to_predict("own_1", model, version)
    )
    assert row == (None if found is None else PolledVersionRow(found, "class"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE models SET owner_id = 'own_2'",
        "UPDATE models SET deleted_at = 5.0",
        "UPDATE models SET base_job = 'job_1'",
        "UPDATE models SET answers = '{}'",
        "INSERT INTO damage (key, kind, tag, found_at) VALUES ('blobs/00/0', 'digest', 't', 1.0)",
    ],
)
def test_a_version_that_needs_further_look_ups_is_not_found(
    with_versions: Database, statement: str
) -> None:
    with with_versions.write() as session:
        session.execute(text(statement))
    assert (
        use_polling_reads(
            with_versions, lambda reads: reads.find_version_to_predict("own_1", "birds", 1)
        )
        is None
    )


def test_many_reads_at_once_all_answer(filled: Database) -> None:
    async def find_job_many_times(reads: PollingDatabaseReads) -> set[str]:
        rows = await asyncio.gather(*(reads.find_job("job_1") for _ in range(50)))
        return {row.id for row in rows if row is not None}

    assert use_polling_reads(filled, find_job_many_times) == {"job_1"}


def test_a_reader_that_was_cancelled_does_not_mix_up_the_next_answer(filled: Database) -> None:
    async def cancel_and_read_again(reads: PollingDatabaseReads) -> None:
        for _ in range(20):
            task = asyncio.create_task(reads.list_job_events("job_1", 0, 100, None))
            await asyncio.sleep(0)
            task.cancel()
            row = await reads.find_job("job_1")
            assert row is not None and row.id == "job_1"

    use_polling_reads(filled, cancel_and_read_again)


def test_nothing_can_be_written_through_the_read_connection(
    tmp_path: Path, filled: Database
) -> None:
    if filled.dialect != "sqlite":
        return

    async def delete_through_reads(reads: PollingDatabaseReads) -> None:
        with pytest.raises(Unavailable):
            await reads._reader.fetch_rows("DELETE FROM jobs", ())

    use_polling_reads(filled, delete_through_reads)


def test_a_postgresql_that_is_away_is_unavailable() -> None:
    async def read_absent_postgresql() -> None:
        reads = PollingDatabaseReads("postgresql+psycopg://nobody@127.0.0.1:1/none", timeout_s=1.0)
        with pytest.raises(Unavailable):
            await reads.find_job("job_1")
        await reads.close()

    asyncio.run(read_absent_postgresql())


def test_a_silent_postgresql_is_unavailable_in_time() -> None:
    async def read_silent_postgresql() -> None:
        server = await asyncio.start_server(lambda r, w: asyncio.sleep(600), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reads = PollingDatabaseReads(
            f"postgresql+psycopg://nobody@127.0.0.1:{port}/none", timeout_s=0.5
        )
        with pytest.raises(Unavailable):
            await reads.find_job("job_1")
        await reads.close()
        server.close()

    asyncio.run(read_silent_postgresql())


def test_reads_work_again_after_the_server_ended_the_connections(filled: Database) -> None:
    if filled.dialect != "postgresql":
        return

    async def read_after_termination(reads: PollingDatabaseReads) -> None:
        from sqlalchemy import text

        assert await reads.find_job("job_1") is not None
        with filled.write() as session:
            session.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        row = await reads.find_job("job_1")
        assert row is not None

    use_polling_reads(filled, read_after_termination)
