"""The sweep removes what is over and nothing else, and forgotten jobs are rung again."""

import os
from typing import Any

import pytest

from core.db.jobs import locked, move
from core.db.states import Action
from core.db.tables import Event, Export, Idempotency, Job, Model, Part, Task, Version
from core.errors import Rejected
from core.work import claim as claims
from core.work import snapshots
from core.work.publish import publish
from core.work.sweep import sweep, unrung

DAY_S = 86_400.0


def run(desk: Any) -> None:
    sweep(desk.db, desk.store, desk.blobs, desk.settings)


def test_a_job_that_waits_without_a_ring_is_rung_again(desk: Any) -> None:
    model = desk.model()
    waiting, behind = desk.submit(model), desk.submit(model)
    assert unrung(desk.db) == [waiting]
    with desk.db.read() as session:
        now = desk.db.now(session)
    desk.set(waiting, rung_at=now)
    assert unrung(desk.db) == []
    desk.set(waiting, rung_at=now - 6)
    assert unrung(desk.db) == [waiting]
    desk.set(waiting, created_at=now)
    assert unrung(desk.db) == []
    assert behind not in unrung(desk.db, 0)


def test_the_snapshot_of_a_running_or_paused_job_stays(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claim = desk.claim()
    snapshots.register(desk.db, desk.store, claim, desk.snapshot(), desk.taken)
    run(desk)
    assert len(desk.keys("snapshots/")) == 2
    with desk.db.write() as session:
        move(session, locked(session, job_id), Action.PAUSE, 1.0)
    claims.stopped(desk.db, claim)
    run(desk)
    assert len(desk.keys("snapshots/")) == 2
    assert desk.job(job_id).snapshot is not None


def test_the_snapshot_of_a_cancelled_job_goes(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claim = desk.claim()
    snapshots.register(desk.db, desk.store, claim, desk.snapshot(), desk.taken)
    with desk.db.write() as session:
        move(session, locked(session, job_id), Action.CANCEL, 1.0)
    claims.stopped(desk.db, claim)
    run(desk)
    assert not desk.keys("snapshots/")
    assert desk.job(job_id).snapshot is None


def test_the_snapshot_of_a_failed_job_stays_seven_days(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claim = desk.claim()
    snapshots.register(desk.db, desk.store, claim, desk.snapshot(), desk.taken)
    claims.fail(desk.db, claim, "code", "x")
    run(desk)
    assert desk.keys("snapshots/")
    desk.set(job_id, finished_at=desk.job(job_id).finished_at - 8 * DAY_S)
    run(desk)
    assert not desk.keys("snapshots/")


def test_what_a_zombie_uploaded_after_the_end_goes(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claim = desk.claim()
    publish(desk.db, desk.store, claim, desk.result({"head": "h"}, [("new", 1, 1, 2)]))
    desk.store.put_bytes(f"{snapshots.prefix_of(job_id)}00000001-000009/tensors.safetensors", b"late")
    run(desk)
    assert not desk.keys("snapshots/")


def test_what_was_superseded_goes_and_the_registered_snapshot_stays(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claim = desk.claim()
    for _ in range(2):
        snapshots.register(desk.db, desk.store, claim, desk.snapshot(), desk.taken)
    desk.store.put_bytes(f"{snapshots.prefix_of(job_id)}{claim.fence:08d}-000001/left-over", b"x")
    run(desk)
    assert desk.keys("snapshots/") == sorted(
        desk.job(job_id).snapshot.key + name for name in ("snapshot.json", "tensors.safetensors")
    )


def test_the_archive_of_a_rejected_batch_goes(desk: Any) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    claim = desk.claim()
    run(desk)
    assert desk.keys("archives/")
    claims.reject(desk.db, claim, Rejected("bad"))
    run(desk)
    assert not desk.keys("archives/")
    assert desk.task(job_id).archive_key is None


def test_the_data_of_a_failed_job_waits_seven_days_for_a_retry(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claims.fail(desk.db, desk.claim(), "code", "x")
    run(desk)
    train = desk.task(job_id).train_sha256
    assert desk.blobs.has(train)
    desk.set(job_id, finished_at=desk.job(job_id).finished_at - 8 * DAY_S)
    run(desk)
    assert not desk.blobs.has(train)
    assert desk.task(job_id).train_deleted_at is not None


def test_a_retry_beats_the_sweep(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claims.fail(desk.db, desk.claim(), "code", "x")
    desk.set(job_id, finished_at=1.0)
    with desk.db.write() as session:
        move(session, locked(session, job_id), Action.RETRY, 1.0)
    run(desk)
    assert desk.blobs.has(desk.task(job_id).train_sha256)


def test_old_events_of_finished_jobs_and_old_idempotency_records_go(desk: Any) -> None:
    done, alive = desk.submit(desk.model()), desk.submit(desk.model())
    claims.fail(desk.db, desk.claim(), "code", "x")
    with desk.db.write() as session:
        for job_id in (done, alive):
            session.add(Event(job_id=job_id, type="log", data={"old": True}, at=1.0))
        for key, at in (("old", 1.0), ("new", desk.db.now(session))):
            session.add(
                Idempotency(
                    owner_id=desk.owner, route="r", key=key, fingerprint="f", headers={}, created_at=at
                )
            )
    run(desk)
    logs = [event.job_id for event in desk.all(Event, type="log") if event.data.get("old")]
    assert logs == [alive if desk.job(done).state == "failed" else done]
    assert [record.key for record in desk.all(Idempotency)] == ["new"]


def test_expired_exports_go_with_their_bytes(desk: Any) -> None:
    model = desk.model()
    version = desk.all(Version, model_id=model)[0].id
    sha256 = desk.blob("an export")
    with desk.db.write() as session:
        now = desk.db.now(session)
        session.add(
            Export(version_id=version, format="a", sha256=sha256, bytes=9, created_at=now - 8 * DAY_S)
        )
        session.add(Export(version_id=version, format="b", sha256=sha256, bytes=9, created_at=now))
    run(desk)
    assert [export.format for export in desk.all(Export)] == ["b"]
    assert desk.blobs.has(sha256)
    with desk.db.write() as session:
        session.get_one(Export, (version, "b")).created_at = 1.0
    run(desk)
    assert not desk.blobs.has(sha256)


def test_a_deleted_model_loses_its_bytes(desk: Any) -> None:
    model, other = desk.model(), desk.model()
    for each, own in ((model, "own"), (other, "other's own")):
        job_id = desk.submit(each)
        claim = desk.claim()
        assert claim.job_id == job_id
        publish(desk.db, desk.store, claim, desk.result({"shared": "s", "head": own}, [("new", 1, 1, 2)]))
    digests = {part.name + str(part.bytes): part.sha256 for part in desk.all(Part)}
    with desk.db.write() as session:
        session.get_one(Model, model).deleted_at = 1.0
    run(desk)
    assert not desk.blobs.has(digests["head3"])
    assert desk.blobs.has(digests["shared1"]) and desk.blobs.has(digests["head11"])
    assert not desk.blobs.has(desk.all(Task, model_id=model)[0].held_out_sha256)
    assert desk.blobs.has(desk.all(Task, model_id=other)[0].held_out_sha256)


def test_a_deleted_model_keeps_its_versions_until_its_last_job_is_over(desk: Any) -> None:
    model = desk.model()
    desk.submit(model)
    publish(desk.db, desk.store, desk.claim(), desk.result({"head": "h"}, [("new", 1, 1, 2)]))
    desk.submit(model)
    claim = desk.claim()
    with desk.db.write() as session:
        session.get_one(Model, model).deleted_at = 1.0
        move(session, session.get_one(Job, claim.job_id), Action.CANCEL, desk.db.now(session))
    parts = {part.sha256 for part in desk.all(Part)}
    run(desk)
    assert parts and all(desk.blobs.has(sha256) for sha256 in parts)  # the job may still read its parent
    claims.stopped(desk.db, claim)
    run(desk)
    assert not any(desk.blobs.has(sha256) for sha256 in parts)


def test_blobs_that_nothing_names_go_after_a_day(desk: Any) -> None:
    desk.submit(desk.model())
    orphan, young = desk.blob("left by a crash"), desk.blob("just stored")
    for key in desk.keys("blobs/"):
        if not key.endswith(young):
            os.utime(desk.folder / "store" / key, (1.0, 1.0))
    run(desk)
    assert not desk.blobs.has(orphan)
    assert desk.blobs.has(young)
    task = desk.all(Task)[0]
    assert desk.blobs.has(task.train_sha256) and desk.blobs.has(task.held_out_sha256)


def test_archives_of_batches_that_were_never_accepted_go_after_a_day(desk: Any) -> None:
    desk.submit(desk.model(), decoded=False, archive=b"waits to be learned")
    accepted = desk.keys("archives/")
    desk.store.put_bytes("archives/tsk_never_accepted", b"left by a crash")
    desk.store.put_bytes("archives/tsk_about_to_be", b"just stored")
    for key in (*accepted, "archives/tsk_never_accepted"):
        os.utime(desk.folder / "store" / key, (1.0, 1.0))
    run(desk)
    assert set(desk.keys("archives/")) == {*accepted, "archives/tsk_about_to_be"}
    assert len(accepted) == 1


def test_unused_blobs_are_looked_for_once_a_day(desk: Any) -> None:
    run(desk)
    orphan = desk.blob("left by a crash")
    os.utime(desk.folder / "store" / desk.blobs.key(orphan), (1.0, 1.0))
    run(desk)
    assert desk.blobs.has(orphan)


def test_old_upload_files_go(desk: Any) -> None:
    spool = desk.settings.folder("spool")
    for name, age in (("old", 1.0), ("new", None)):
        (spool / name).write_text("x")
        if age is not None:
            os.utime(spool / name, (age, age))
    run(desk)
    assert [path.name for path in spool.iterdir()] == ["new"]


def test_what_a_crashed_writer_left_half_written_goes_after_a_day(desk: Any) -> None:
    """Only the worker starts again after a crash of a worker: nobody else looks there."""
    incoming = desk.store.root / ".incoming"
    for name, age in (("old", 1.0), ("new", None)):
        (incoming / name).write_text("images")
        if age is not None:
            os.utime(incoming / name, (age, age))
    run(desk)
    assert [path.name for path in incoming.iterdir()] == ["new"]


def test_a_crash_between_marking_and_deleting_is_repaired(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.work import retention

    desk.submit(desk.model(training_data_days=0.0))
    with monkeypatch.context() as patched:
        patched.setattr(retention, "drop", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish(desk.db, desk.store, desk.claim(), desk.result({"head": "h"}, [("new", 1, 1, 2)]))
    train = desk.all(Task)[0].train_sha256
    assert desk.blobs.has(train)
    os.utime(desk.folder / "store" / desk.blobs.key(train), (1.0, 1.0))
    run(desk)
    assert not desk.blobs.has(train)


@pytest.mark.parametrize("prefix", ["snapshots", "anytime"])
def test_what_a_lost_attempt_left_unregistered_goes_while_the_job_waits(desk: Any, prefix: str) -> None:
    job_id = desk.submit(desk.model())
    claim = desk.claim()
    desk.store.put_bytes(f"{prefix}/{job_id}/{claim.fence:08d}-000001/tensors", b"late")
    claims.stopped(desk.db, claim)
    run(desk)
    assert not desk.keys(f"{prefix}/")


def test_what_a_failed_job_never_registered_goes_at_once(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claim = desk.claim()
    desk.store.put_bytes(f"snapshots/{job_id}/{claim.fence:08d}-000001/tensors", b"late")
    claims.fail(desk.db, claim, "code", "x")
    run(desk)
    assert not desk.keys("snapshots/")


def test_an_attempt_keeps_what_it_has_not_registered_yet(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claims.stopped(desk.db, desk.claim())
    claim = desk.claim()
    for fence in (claim.fence - 1, claim.fence):
        desk.store.put_bytes(f"snapshots/{job_id}/{fence:08d}-000001/tensors", b"x")
    run(desk)
    assert desk.keys("snapshots/") == [f"snapshots/{job_id}/{claim.fence:08d}-000001/tensors"]


def test_this_machines_copies_of_deleted_blobs_go_and_others_stay(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit(desk.model())
    parts = {"head": "h", "buffer": "images"}
    publish(desk.db, desk.store, desk.claim(), desk.result(parts, [("new", 1, 1, 2)]))
    head, buffer = desk.all(Part)
    with monkeypatch.context() as hidden:  # as if the store had no files here
        hidden.setattr(desk.store, "local_path", lambda key: None)
        copies = [desk.blobs.fetch(part.sha256) for part in (head, buffer)]
    with desk.db.write() as session:
        session.get_one(Part, (buffer.version_id, buffer.name)).deleted_at = 1.0
    run(desk)
    assert [path.exists() for path in copies] == [True, False]
