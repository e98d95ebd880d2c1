"""The retention table of the design, row by row.

Each object is kept until its time, and is then gone from the database and the store.
"""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from core.contract.jobs.snapshot import StoredBestState
from core.database.jobs import change_job_state, lock_job
from core.database.session import Database
from core.database.states import JobAction
from core.database.tables import (
    ExportedDownload,
    IdempotencyRecord,
    Model,
    StoredJobEvent,
    Task,
    Version,
)
from core.errors import Rejected
from core.execution import snapshots
from core.scheduling import claim as claims
from core.upkeep.sweep_dry_run import list_sweep_removals

HOUR = 1 / 24
FOR_EVER = 10_000.0
"""Number of days that stands for an unlimited time."""


class Clock:
    """The clock of the database, which a test advances."""

    def __init__(self) -> None:
        self.days = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found, real = Clock(), Database.now

    def compute_shifted_now(self: Database, session: Session) -> float:
        return real(self, session) + found.days * 86_400.0

    monkeypatch.setattr(Database, "now", compute_shifted_now)
    return found


def watch_training_part(desk: Any) -> Callable[[], bool]:
    """Return a function that tells whether the only task's training part is stored.

    Rows and store must agree.
    """
    task = desk.all(Task)[0]
    return watch_blob(desk, task.train_sha256, lambda: desk.all(Task)[0].train_deleted_at is None)


def watch_held_out_part(desk: Any) -> Callable[[], bool]:
    task = desk.all(Task)[0]
    return watch_blob(
        desk, task.held_out_sha256, lambda: desk.all(Task)[0].held_out_deleted_at is None
    )


def watch_blob(desk: Any, sha256: str, named: Callable[[], bool]) -> Callable[[], bool]:
    def is_blob_named() -> bool:
        assert desk.blobs.has(sha256) is named()
        return named()

    return is_blob_named


def prepare_learned_task(desk: Any, *, gate: float = 0.0, **model: Any) -> str:
    """Prepare a task whose version was published, or held by its gate. Return its model."""
    model_id = desk.model(gate={"min_new_task": gate}, **model)
    desk.submit(model_id, gate={"min_new_task": gate})
    desk.publish()
    return str(model_id)


def prepare_held_task(desk: Any) -> Callable[[], bool]:
    prepare_learned_task(desk, gate=0.9)
    assert desk.all(Version)[-1].status == "held"
    return watch_training_part(desk)


def prepare_held_and_relearned_task(desk: Any) -> Callable[[], bool]:
    prepare_learned_task(desk, gate=0.9)
    job = desk.again(desk.all(Version)[-1].job_id)
    desk.set(job, gate={})
    present = watch_training_part(desk)
    assert present()
    desk.publish({"head": "i"}, [("new", 1, 2, 2)])
    return present


def prepare_held_and_skipped_task(desk: Any) -> Callable[[], bool]:
    prepare_learned_task(desk, gate=0.9, on_held="continue")
    assert desk.all(Task)[0].standing == "skipped"
    return watch_training_part(desk)


def prepare_failed_task_that_stops(desk: Any) -> Callable[[], bool]:
    desk.submit(desk.model(on_failed="stop"))
    claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "x")
    return watch_training_part(desk)


def prepare_cancelled_task(desk: Any) -> Callable[[], bool]:
    job = desk.submit(desk.model())
    claim = desk.claim()
    desk.set(job, state="cancelling")
    claims.complete_pause_or_cancellation(desk.db, claim)
    return watch_training_part(desk)


def prepare_published_task_without_data(desk: Any) -> Callable[[], bool]:
    prepare_learned_task(desk, training_data_days=0.0)
    return watch_training_part(desk)


def prepare_failed_task(desk: Any) -> Callable[[], bool]:
    desk.submit(desk.model())
    claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "x")
    return watch_training_part(desk)


def prepare_published_task(desk: Any) -> Callable[[], bool]:
    prepare_learned_task(desk)
    return watch_training_part(desk)


def prepare_task_kept_by_its_model(desk: Any) -> Callable[[], bool]:
    prepare_learned_task(desk, keep_training_data=True)
    return watch_training_part(desk)


def prepare_held_out_part(desk: Any) -> Callable[[], bool]:
    prepare_learned_task(desk)
    return watch_held_out_part(desk)


def prepare_held_out_of_a_deleted_model(desk: Any) -> Callable[[], bool]:
    model = prepare_learned_task(desk)
    with desk.db.write() as session:
        session.get_one(Model, model).deleted_at = 1.0
    return watch_held_out_part(desk)


def prepare_counted_held_out_part(desk: Any) -> Callable[[], bool]:
    prepare_learned_task(desk, held_out="counts")
    return watch_held_out_part(desk)


def prepare_uncounted_held_out_part(desk: Any) -> Callable[[], bool]:
    desk.submit(desk.model(held_out="counts"))
    return watch_held_out_part(desk)


def prepare_archive(desk: Any) -> Callable[[], bool]:
    desk.submit(desk.model(), decoded=False, archive=b"zip")

    def is_archive_named() -> bool:
        stored = bool(desk.keys("archives/"))
        assert stored is (desk.all(Task)[0].archive_key is not None)
        return stored

    return is_archive_named


def prepare_committed_archive(desk: Any) -> Callable[[], bool]:
    look = prepare_archive(desk)
    desk.claim()
    with desk.db.write() as session:  # as a worker leaves it that dies after the commit
        session.get_one(Task, desk.all(Task)[0].id).train_sha256 = desk.blob("decoded")
    return look


def prepare_archive_of_rejected_batch(desk: Any) -> Callable[[], bool]:
    look = prepare_archive(desk)
    claims.reject_job(desk.db, desk.claim(), Rejected("bad"))
    return look


def prepare_job_state(kind: str, end: str) -> Callable[[Any], Callable[[], bool]]:
    def prepare_state(desk: Any) -> Callable[[], bool]:
        job = desk.submit(desk.model())
        claim = desk.claim()
        if kind == "snapshot":
            desk.register(claim)
        else:
            key = f"anytime/{job}/{claim.fence:08d}-000001/"
            files = snapshots.store_files_under_key_prefix(
                desk.store, key, sorted(desk.snapshot().iterdir())
            )
            best = {
                "key": key,
                "files": files,
                "fence": claim.fence,
                "number": 1,
                "step": 4,
                "correct": 3,
            }
            desk.set(job, anytime=StoredBestState.from_json(best))
        if end == "failed":
            claims.fail_claimed_job_or_trial(desk.db, claim, "code", "x")
        elif end in ("cancelled", "paused"):
            with desk.db.write() as session:
                change_job_state(
                    session,
                    lock_job(session, job),
                    JobAction.CANCEL if end == "cancelled" else JobAction.PAUSE,
                    1.0,
                )
            claims.complete_pause_or_cancellation(desk.db, claim)

        def is_state_named() -> bool:
            stored = bool(desk.keys(f"{'snapshots' if kind == 'snapshot' else 'anytime'}/"))
            assert stored is (getattr(desk.job(job), kind) is not None)
            return stored

        return is_state_named

    return prepare_state


def prepare_exported_download(desk: Any) -> Callable[[], bool]:
    version = desk.all(Version, model_id=desk.model())[0].id
    sha256 = desk.blob("a download")
    with desk.db.write() as session:
        made = desk.db.now(session)
        session.add(
            ExportedDownload(
                version_id=version, format="x", sha256=sha256, bytes=10, created_at=made
            )
        )
    return watch_blob(desk, sha256, lambda: bool(desk.all(ExportedDownload)))


def prepare_idempotency_record(desk: Any) -> Callable[[], bool]:
    desk.model()
    with desk.db.write() as session:
        made = desk.db.now(session)
        session.add(
            IdempotencyRecord(
                owner_id=desk.owner,
                route="r",
                key="k",
                fingerprint="f",
                headers={},
                created_at=made,
            )
        )
    return lambda: bool(desk.all(IdempotencyRecord))


def prepare_job_event(state: str) -> Callable[[Any], Callable[[], bool]]:
    def prepare_event(desk: Any) -> Callable[[], bool]:
        job = desk.submit(desk.model())
        if state == "failed":
            claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "x")
        with desk.db.write() as session:
            session.add(StoredJobEvent(job_id=job, type="log", data={}, at=desk.db.now(session)))
        return lambda: bool(desk.all(StoredJobEvent, type="log"))

    return prepare_event


def prepare_orphaned_blob(desk: Any) -> Callable[[], bool]:
    desk.model()
    sha256 = desk.blob("left by a crash")
    return lambda: desk.blobs.has(sha256)


TABLE: list[tuple[str, Callable[[Any], Callable[[], bool]], float]] = [
    ("archive, not decoded", prepare_archive, FOR_EVER),
    ("archive, dataset committed", prepare_committed_archive, 0),
    ("archive, rejected", prepare_archive_of_rejected_batch, 0),
    ("training part, published", prepare_published_task, 7),
    ("training part, published, training_data_days 0", prepare_published_task_without_data, 0),
    ("training part, held", prepare_held_task, FOR_EVER),
    ("training part, held and skipped", prepare_held_and_skipped_task, 7),
    ("training part, held and learned again", prepare_held_and_relearned_task, 7),
    ("training part, failed", prepare_failed_task, 7),
    ("training part, failed, and the line waits", prepare_failed_task_that_stops, FOR_EVER),
    ("training part, cancelled", prepare_cancelled_task, 7),
    ("training part, keep_training_data", prepare_task_kept_by_its_model, FOR_EVER),
    ("held-out part", prepare_held_out_part, FOR_EVER),
    ("held-out part, model deleted", prepare_held_out_of_a_deleted_model, 0),
    ("held-out part, counts, not measured", prepare_uncounted_held_out_part, FOR_EVER),
    ("held-out part, counts, measured", prepare_counted_held_out_part, 0),
    ("snapshot, running", prepare_job_state("snapshot", "running"), FOR_EVER),
    ("snapshot, paused", prepare_job_state("snapshot", "paused"), FOR_EVER),
    ("snapshot, cancelled", prepare_job_state("snapshot", "cancelled"), 0),
    ("snapshot, failed", prepare_job_state("snapshot", "failed"), 7),
    ("anytime, running", prepare_job_state("anytime", "running"), FOR_EVER),
    ("anytime, paused", prepare_job_state("anytime", "paused"), FOR_EVER),
    ("anytime, cancelled", prepare_job_state("anytime", "cancelled"), 0),
    ("anytime, failed", prepare_job_state("anytime", "failed"), 7),
    ("export", prepare_exported_download, 7),
    ("idempotency record", prepare_idempotency_record, 1),
    ("event, job finished", prepare_job_event("failed"), 90),
    ("event, job unfinished", prepare_job_event("queued"), FOR_EVER),
    ("blob that nothing names", prepare_orphaned_blob, 1),
]
"""Name of the case, function that prepares it, and number of days for which it is kept."""


@pytest.mark.parametrize(
    ("make", "days"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_it_is_kept_until_its_time_and_gone_afterwards(
    desk: Any, clock: Clock, make: Callable[[Any], Callable[[], bool]], days: float
) -> None:
    present = make(desk)
    if days > 0:
        clock.days = days - HOUR
        desk.remove_unwanted_runs(whole=True)
        assert present()
    if days == FOR_EVER:
        return
    clock.days = days + HOUR
    told = {removal.reason for removal in list_sweep_removals(desk.db, desk.store, desk.settings)}
    before = present()
    assert bool(told) is before  # some are gone at their moment, without any sweep
    desk.remove_unwanted_runs(whole=True)
    assert not present()
