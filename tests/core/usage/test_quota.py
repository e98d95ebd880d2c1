"""The bytes an owner may store: refused before and at acceptance, on both databases."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select, update

from core.admission.admission import NewJobLimits
from core.database.session import Database
from core.database.states import JobState
from core.database.tables import Job, Model, Owner, Task, VersionPart
from core.errors import BodyTooLarge, StorageQuotaReached, TooManyRequests
from core.ids import new_id
from core.requests.actor import Actor
from core.tasks import retries, submission
from core.usage import quota, stored_bytes
from tests.core.batches import CATALOGUE
from tests.core.office import Office
from tests.core.rows import make_version_row


def read_measured_bytes(db: Database, actor: Actor) -> int | None:
    with db.read() as session:
        return stored_bytes.read_measured_owner_bytes(session, actor.owner_id)[0]


def make_measure_stale(db: Database) -> None:
    """Move the last measurement far into the past."""
    with db.write() as session:
        session.execute(update(Owner).values(bytes_at=Owner.bytes_at - 2 * quota.FRESH_S))


def call_side_by_side(calls: list[Callable[[], object]]) -> list[str]:
    """Make all calls at once, each in a thread.
    Return "accepted" or the class of the refusal of each, sorted.
    """
    together = threading.Barrier(len(calls))
    outcomes: list[str] = []

    def call_and_record_outcome(call: Callable[[], object]) -> None:
        together.wait(60)
        try:
            call()
            outcomes.append("accepted")
        except TooManyRequests as refused:
            outcomes.append(type(refused).__name__)

    threads = [threading.Thread(target=call_and_record_outcome, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(outcomes)


def test_uploads_are_accepted_up_to_the_limit_and_what_is_refused_leaves_nothing(
    office: Office, model: str
) -> None:
    for number in range(3):
        office.submit(number, max_bytes=30)
    with pytest.raises(StorageQuotaReached) as refused:
        office.submit(3, max_bytes=30)
    assert isinstance(refused.value, TooManyRequests) and refused.value.retry_after_s
    assert refused.value.extra == {"used": 27, "limit": 30}
    assert "Delete" in refused.value.detail
    assert len(list(office.store.list("archives/"))) == 3
    assert read_measured_bytes(office.db, office.actor) == 27


def test_a_declared_length_is_refused_before_the_body(office: Office, model: str) -> None:
    def check_declared_length(length: int | None) -> None:
        submission.require_batch_room_and_detect_former_names(
            office.db, office.actor, "birds", max_open_jobs=9, max_bytes=100, length=length
        )

    check_declared_length(100)
    check_declared_length(None)
    with pytest.raises(BodyTooLarge):
        check_declared_length(101)
    with office.db.write() as session:
        stored_bytes.add_stored_bytes(session, office.actor.owner_id, 100)
    # The last measurement counts, and what was stored since.
    with pytest.raises(StorageQuotaReached):
        check_declared_length(None)


@pytest.mark.both_databases
def test_uploads_side_by_side_do_not_exceed_the_limit_together(
    office: Office, model: str, monkeypatch: Any
) -> None:
    quota.require_storage_room(office.db, office.actor.owner_id, 45, 9)  # measures
    everyone = threading.Barrier(12)
    real = quota.require_storage_room

    def check_and_wait_for_all(*given: Any) -> None:
        real(*given)
        everyone.wait(60)  # all were told that there is room

    monkeypatch.setattr(quota, "require_storage_room", check_and_wait_for_all)
    calls = [partial(office.submit, number, max_bytes=45) for number in range(12)]
    assert call_side_by_side(calls) == ["StorageQuotaReached"] * 7 + ["accepted"] * 5
    assert len(list(office.store.list("archives/"))) == 5


@pytest.mark.both_databases
def test_jobs_added_side_by_side_do_not_exceed_the_limit_together(office: Office) -> None:
    for number in range(12):  # no row is shared but the owner's
        office.create(f"model-{number}")
    calls = [
        partial(office.submit, number, f"model-{number}", max_open_jobs=5) for number in range(12)
    ]
    assert call_side_by_side(calls) == ["TooManyRequests"] * 7 + ["accepted"] * 5
    assert len(list(office.store.list("archives/"))) == 5


@pytest.mark.both_databases
@pytest.mark.parametrize(
    # `test_repeats.py` retries a held version at once.
    "ended",
    ["failed", pytest.param("held", marks=pytest.mark.campaign)],
)
def test_retries_side_by_side_do_not_exceed_the_limit_together(office: Office, ended: str) -> None:
    ids = []
    for number in range(8):
        office.create(f"model-{number}")
        ids.append(office.submit(number, f"model-{number}")["job"]["id"])
    state = JobState.FAILED if ended == "failed" else JobState.SUCCEEDED
    with office.db.write() as session:
        for job in session.execute(select(Job)).scalars():
            job.state = str(state)
            if ended == "held":
                of = {"parent": 0, "task_number": 1, "job_id": job.id, "status": "held"}
                session.add(make_version_row(new_id("ver"), job.model_id, **of))
    retry = partial(
        retries.retry_job, office.db, CATALOGUE, office.actor, override=None, limits=NewJobLimits(5)
    )
    calls = [partial(retry, job_id) for job_id in ids]
    assert call_side_by_side(calls) == ["TooManyRequests"] * 3 + ["accepted"] * 5


def test_deleting_makes_room_at_once(office: Office, model: str) -> None:
    office.submit(1, max_bytes=10)
    with pytest.raises(StorageQuotaReached):
        office.submit(2, max_bytes=10)
    with office.db.write() as session:
        session.execute(update(Task).values(archive_key=None))
    make_measure_stale(office.db)
    office.submit(3, max_bytes=10)
    assert read_measured_bytes(office.db, office.actor) == 9


@pytest.mark.both_databases
def test_the_sum_counts_archives_images_versions_and_each_blob_once(
    office: Office, model: str
) -> None:
    office.submit(1, max_bytes=0)
    office.submit(2, max_bytes=0)
    with office.db.write() as session:
        row = session.get_one(Model, model)
        second = session.query(Task).filter_by(number=2).one()
        second.archive_key, second.n_train, second.n_held_out = None, 10, 4
        second.train_sha256 = second.held_out_sha256 = "a" * 64
        second.train_deleted_at = 5.0
        for number in (1, 2):
            version = make_version_row(new_id("ver"), row.id, number, parent=0, bytes=700)
            session.add(version)
            session.flush()
            shared = {"position": 0, "type": "head", "version_id": version.id}
            session.add(VersionPart(name="shared", sha256="b" * 64, bytes=500, **shared))
            gone = 3.0 if number == 1 else None
            session.add(
                VersionPart(
                    name="own", sha256=f"{number:064x}", bytes=200, deleted_at=gone, **shared
                )
            )
    assert (
        stored_bytes.measure_and_store_owner_bytes(office.db, office.actor.owner_id)
        == 9 + 4 * 32 * 32 * 3 + 500 + 200
    )


@pytest.mark.both_databases
def test_what_is_added_during_a_measure_is_kept(
    office: Office, model: str, monkeypatch: Any
) -> None:
    assert stored_bytes.measure_and_store_owner_bytes(office.db, office.actor.owner_id) == 0
    real = stored_bytes._sum_owner_bytes

    def measure_while_adding(session: Any, owner: str) -> int:
        total = real(session, owner)
        with office.db.write() as other:
            stored_bytes.add_stored_bytes(other, office.actor.owner_id, 70)
        return total

    monkeypatch.setattr(stored_bytes, "_sum_owner_bytes", measure_while_adding)
    assert stored_bytes.measure_and_store_owner_bytes(office.db, office.actor.owner_id) == 70


@pytest.mark.both_databases
def test_of_two_measures_at_once_the_first_stands(
    office: Office, model: str, monkeypatch: Any
) -> None:
    with office.db.write() as session:
        session.execute(
            update(Owner).where(Owner.id == office.actor.owner_id).values(bytes=100, bytes_at=1.0)
        )
    real = stored_bytes._sum_owner_bytes
    nested: list[int] = []

    def measure_after_nested_measure(session: Any, owner: str) -> int:
        if not nested:
            nested.append(1)
            stored_bytes.measure_and_store_owner_bytes(office.db, owner)
        return real(session, owner)

    monkeypatch.setattr(stored_bytes, "_sum_owner_bytes", measure_after_nested_measure)
    assert stored_bytes.measure_and_store_owner_bytes(office.db, office.actor.owner_id) == 0


def test_an_administrators_upload_counts_for_the_models_owner(office: Office, model: str) -> None:
    boss = new_id("own")
    with office.db.write() as session:
        session.add(Owner(id=boss, name=boss, created_at=1.0))
    office.submit(1, actor=Actor(boss, None, "admin"), max_bytes=30)
    assert read_measured_bytes(office.db, office.actor) == 9
    assert read_measured_bytes(office.db, Actor(boss, None, "admin")) is None
