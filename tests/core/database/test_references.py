"""The lock between naming a blob and deleting it."""

import threading

import pytest

from core.database.session import Database
from core.database.tables import Task, UploadedBase
from core.retention import references

pytestmark = pytest.mark.both_databases


def test_what_any_row_names_is_used(filled: Database) -> None:
    with filled.write() as session:
        task = session.get_one(Task, "tsk_1")
        task.train_sha256, task.held_out_sha256 = "a" * 64, "b" * 64
        session.add(
            UploadedBase(
                id="bas_1",
                owner_id="own_1",
                architecture={},
                sha256="c" * 64,
                bytes=1,
                created_at=1.0,
            )
        )
    with filled.read() as session:
        every = [letter * 64 for letter in "abcd"]
        assert references.find_digests_still_in_use(session, every) == {
            "a" * 64,
            "b" * 64,
            "c" * 64,
        }


def test_a_file_that_is_marked_as_deleted_is_not_used(filled: Database) -> None:
    with filled.write() as session:
        task = session.get_one(Task, "tsk_1")
        task.train_sha256 = task.held_out_sha256 = "a" * 64
        task.train_deleted_at = 1.0
    with filled.read() as session:
        assert references.find_digests_still_in_use(session, ["a" * 64]) == {"a" * 64}
    with filled.write() as session:
        session.get_one(Task, "tsk_1").held_out_deleted_at = 1.0
    with filled.read() as session:
        assert references.find_digests_still_in_use(session, ["a" * 64]) == set()


@pytest.mark.parametrize(
    "first", ["lock_blob_references_against_deletion", "lock_blob_references_exclusively"]
)
def test_deleting_waits_for_those_who_refer_and_the_reverse(filled: Database, first: str) -> None:
    second = (
        "lock_blob_references_exclusively"
        if first == "lock_blob_references_against_deletion"
        else "lock_blob_references_against_deletion"
    )
    order: list[str] = []
    entered, leave = threading.Event(), threading.Event()

    def hold_first_reference() -> None:
        with filled.write() as session:
            getattr(references, first)(session)
            entered.set()
            leave.wait(60)
            order.append(first)

    def wait_for_second_reference() -> None:
        with filled.write() as session:
            getattr(references, second)(session)
            order.append(second)

    threads = [
        threading.Thread(target=hold_first_reference),
        threading.Thread(target=wait_for_second_reference),
    ]
    threads[0].start()
    assert entered.wait(60)
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()
    leave.set()
    for thread in threads:
        thread.join(60)
    assert order == [first, second]


def test_those_who_refer_do_not_wait_for_each_other(filled: Database) -> None:
    if filled.dialect != "postgresql":
        return  # SQLite has one writer at a time anyway
    with filled.write() as one, filled.write() as two:
        references.lock_blob_references_against_deletion(one)
        references.lock_blob_references_against_deletion(two)
