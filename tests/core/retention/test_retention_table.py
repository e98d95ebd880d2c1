"""The retention table of the design, row by row: kept until its time, then gone from database and
store.
"""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from core.contract.jobs.snapshot import StoredBestState
from core.database.jobs import change_job_state, lock_job
from core.database.session import Database
from core.database.states import JobAction
from core.database.tables import Event, ExportedDownload, IdempotencyRecord, Model, Task, Version
from core.errors import Rejected
from core.execution import snapshots
from core.scheduling import claim as claims
from core.upkeep.sweep_dry_run import list_sweep_removals

HOUR = 1 / 24
FOR_EVER = 10_000.0
"""Days."""


class Clock:
    """The database's clock, which a test moves on."""

    def __init__(self) -> None:
        self.days = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found, real = Clock(), Database.now

    def now(self: Database, session: Session) -> float:
        return real(self, session) + found.days * 86_400.0

    monkeypatch.setattr(Database, "now", now)
    return found


def kept(desk: Any) -> Callable[[], bool]:
    """Whether the training part of the only task is there; row and store say the same."""
    task = desk.all(Task)[0]
    return agreed(desk, task.train_sha256, lambda: desk.all(Task)[0].train_deleted_at is None)


def held_out(desk: Any) -> Callable[[], bool]:
    task = desk.all(Task)[0]
    return agreed(desk, task.held_out_sha256, lambda: desk.all(Task)[0].held_out_deleted_at is None)


def agreed(desk: Any, sha256: str, named: Callable[[], bool]) -> Callable[[], bool]:
    def look() -> bool:
        assert desk.blobs.has(sha256) is named()
        return named()

    return look


def learned(desk: Any, *, gate: float = 0.0, **model: Any) -> str:
    """A task whose version was published, or held by its gate."""
    model_id = desk.model(gate={"min_new_task": gate}, **model)
    desk.submit(model_id, gate={"min_new_task": gate})
    desk.publish()
    return str(model_id)


def held(desk: Any) -> Callable[[], bool]:
    learned(desk, gate=0.9)
    assert desk.all(Version)[-1].status == "held"
    return kept(desk)


def held_and_learned_again(desk: Any) -> Callable[[], bool]:
    learned(desk, gate=0.9)
    job = desk.again(desk.all(Version)[-1].job_id)
    desk.set(job, gate={})
    present = kept(desk)
    assert present()
    desk.publish({"head": "i"}, [("new", 1, 2, 2)])
    return present


def held_and_skipped(desk: Any) -> Callable[[], bool]:
    learned(desk, gate=0.9, on_held="continue")
    assert desk.all(Task)[0].standing == "skipped"
    return kept(desk)


def failed_and_stopping(desk: Any) -> Callable[[], bool]:
    desk.submit(desk.model(on_failed="stop"))
    claims.fail_job(desk.db, desk.claim(), "code", "x")
    return kept(desk)


def cancelled(desk: Any) -> Callable[[], bool]:
    job = desk.submit(desk.model())
    claim = desk.claim()
    desk.set(job, state="cancelling")
    claims.complete_pause_or_cancellation(desk.db, claim)
    return kept(desk)


def published_and_not_kept(desk: Any) -> Callable[[], bool]:
    learned(desk, training_data_days=0.0)
    return kept(desk)


def failed(desk: Any) -> Callable[[], bool]:
    desk.submit(desk.model())
    claims.fail_job(desk.db, desk.claim(), "code", "x")
    return kept(desk)


def published(desk: Any) -> Callable[[], bool]:
    learned(desk)
    return kept(desk)


def kept_by_the_model(desk: Any) -> Callable[[], bool]:
    learned(desk, keep_training_data=True)
    return kept(desk)


def held_out_of_a_model(desk: Any) -> Callable[[], bool]:
    learned(desk)
    return held_out(desk)


def held_out_of_a_deleted_model(desk: Any) -> Callable[[], bool]:
    model = learned(desk)
    with desk.db.write() as session:
        session.get_one(Model, model).deleted_at = 1.0
    return held_out(desk)


def counted(desk: Any) -> Callable[[], bool]:
    learned(desk, held_out="counts")
    return held_out(desk)


def not_counted_yet(desk: Any) -> Callable[[], bool]:
    desk.submit(desk.model(held_out="counts"))
    return held_out(desk)


def archive(desk: Any) -> Callable[[], bool]:
    desk.submit(desk.model(), decoded=False, archive=b"zip")

    def look() -> bool:
        stored = bool(desk.keys("archives/"))
        assert stored is (desk.all(Task)[0].archive_key is not None)
        return stored

    return look


def archive_of_a_committed_dataset(desk: Any) -> Callable[[], bool]:
    look = archive(desk)
    desk.claim()
    with desk.db.write() as session:  # as a worker leaves it that dies after the commit
        session.get_one(Task, desk.all(Task)[0].id).train_sha256 = desk.blob("decoded")
    return look


def archive_of_a_rejected_batch(desk: Any) -> Callable[[], bool]:
    look = archive(desk)
    claims.reject_job(desk.db, desk.claim(), Rejected("bad"))
    return look


def state(kind: str, end: str) -> Callable[[Any], Callable[[], bool]]:
    def make(desk: Any) -> Callable[[], bool]:
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
            claims.fail_job(desk.db, claim, "code", "x")
        elif end in ("cancelled", "paused"):
            with desk.db.write() as session:
                change_job_state(
                    session,
                    lock_job(session, job),
                    JobAction.CANCEL if end == "cancelled" else JobAction.PAUSE,
                    1.0,
                )
            claims.complete_pause_or_cancellation(desk.db, claim)

        def look() -> bool:
            stored = bool(desk.keys(f"{'snapshots' if kind == 'snapshot' else 'anytime'}/"))
            assert stored is (getattr(desk.job(job), kind) is not None)
            return stored

        return look

    return make


def export(desk: Any) -> Callable[[], bool]:
    version = desk.all(Version, model_id=desk.model())[0].id
    sha256 = desk.blob("a download")
    with desk.db.write() as session:
        made = desk.db.now(session)
        session.add(
            ExportedDownload(
                version_id=version, format="x", sha256=sha256, bytes=10, created_at=made
            )
        )
    return agreed(desk, sha256, lambda: bool(desk.all(ExportedDownload)))


def idempotency(desk: Any) -> Callable[[], bool]:
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


def event(state: str) -> Callable[[Any], Callable[[], bool]]:
    def make(desk: Any) -> Callable[[], bool]:
        job = desk.submit(desk.model())
        if state == "failed":
            claims.fail_job(desk.db, desk.claim(), "code", "x")
        with desk.db.write() as session:
            session.add(Event(job_id=job, type="log", data={}, at=desk.db.now(session)))
        return lambda: bool(desk.all(Event, type="log"))

    return make


def orphan(desk: Any) -> Callable[[], bool]:
    desk.model()
    sha256 = desk.blob("left by a crash")
    return lambda: desk.blobs.has(sha256)


TABLE: list[tuple[str, Callable[[Any], Callable[[], bool]], float]] = [
    ("archive, not decoded", archive, FOR_EVER),
    ("archive, dataset committed", archive_of_a_committed_dataset, 0),
    ("archive, rejected", archive_of_a_rejected_batch, 0),
    ("training part, published", published, 7),
    ("training part, published, training_data_days 0", published_and_not_kept, 0),
    ("training part, held", held, FOR_EVER),
    ("training part, held and skipped", held_and_skipped, 7),
    ("training part, held and learned again", held_and_learned_again, 7),
    ("training part, failed", failed, 7),
    ("training part, failed, and the line waits", failed_and_stopping, FOR_EVER),
    ("training part, cancelled", cancelled, 7),
    ("training part, keep_training_data", kept_by_the_model, FOR_EVER),
    ("held-out part", held_out_of_a_model, FOR_EVER),
    ("held-out part, model deleted", held_out_of_a_deleted_model, 0),
    ("held-out part, counts, not measured", not_counted_yet, FOR_EVER),
    ("held-out part, counts, measured", counted, 0),
    ("snapshot, running", state("snapshot", "running"), FOR_EVER),
    ("snapshot, paused", state("snapshot", "paused"), FOR_EVER),
    ("snapshot, cancelled", state("snapshot", "cancelled"), 0),
    ("snapshot, failed", state("snapshot", "failed"), 7),
    ("anytime, running", state("anytime", "running"), FOR_EVER),
    ("anytime, paused", state("anytime", "paused"), FOR_EVER),
    ("anytime, cancelled", state("anytime", "cancelled"), 0),
    ("anytime, failed", state("anytime", "failed"), 7),
    ("export", export, 7),
    ("idempotency record", idempotency, 1),
    ("event, job finished", event("failed"), 90),
    ("event, job unfinished", event("queued"), FOR_EVER),
    ("blob that nothing names", orphan, 1),
]
"""What, how it comes about, and for how many days it is kept."""


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
