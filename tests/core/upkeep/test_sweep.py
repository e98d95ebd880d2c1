"""The sweep removes only what is no longer needed, and announces forgotten jobs again."""

import os
from typing import Any

import pytest

from core.database.jobs import change_job_state
from core.database.states import JobAction
from core.database.tables import ExportedDownload, Job, Model, Task, Version, VersionPart
from core.execution import snapshots
from core.scheduling import claim as claims
from core.upkeep.sweep import find_long_waiting_claimable_jobs

DAY_S = 86_400.0


def test_a_job_that_waits_without_a_ring_is_rung_again(desk: Any) -> None:
    model = desk.model()
    waiting, behind = desk.submit(model), desk.submit(model)
    assert find_long_waiting_claimable_jobs(desk.db) == [waiting]
    with desk.db.read() as session:
        now = desk.db.now(session)
    desk.set(waiting, rung_at=now)
    assert find_long_waiting_claimable_jobs(desk.db) == []
    desk.set(waiting, rung_at=now - 6)
    assert find_long_waiting_claimable_jobs(desk.db) == [waiting]
    desk.set(waiting, created_at=now)
    assert find_long_waiting_claimable_jobs(desk.db) == []
    assert behind not in find_long_waiting_claimable_jobs(desk.db, 0)


def test_what_was_superseded_goes_and_the_registered_snapshot_stays(desk: Any) -> None:
    job_id, claim = desk.begin()
    for _ in range(2):
        desk.register(claim)
    desk.store.put_bytes(
        f"{snapshots.build_snapshot_key_prefix(job_id)}{claim.fence:08d}-000001/left-over", b"x"
    )
    desk.remove_unwanted_runs()
    assert desk.keys("snapshots/") == sorted(
        desk.job(job_id).snapshot.key + name for name in ("snapshot.json", "tensors.safetensors")
    )


def test_a_retry_beats_the_sweep(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "x")
    desk.set(job_id, finished_at=1.0)
    desk.act(job_id, JobAction.RETRY)
    desk.remove_unwanted_runs()
    assert desk.blobs.has(desk.task(job_id).train_sha256)


def test_expired_exports_go_with_their_bytes(desk: Any) -> None:
    model = desk.model()
    version = desk.all(Version, model_id=model)[0].id
    sha256 = desk.blob("an export")
    with desk.db.write() as session:
        now = desk.db.now(session)
        for name, at in (("a", now - 8 * DAY_S), ("b", now)):
            session.add(
                ExportedDownload(
                    version_id=version, format=name, sha256=sha256, bytes=9, created_at=at
                )
            )
    desk.remove_unwanted_runs()
    assert [export.format for export in desk.all(ExportedDownload)] == ["b"]
    assert desk.blobs.has(sha256)
    with desk.db.write() as session:
        session.get_one(ExportedDownload, (version, "b")).created_at = 1.0
    desk.remove_unwanted_runs()
    assert not desk.blobs.has(sha256)


def test_a_deleted_model_loses_its_bytes(desk: Any) -> None:
    model, other = desk.model(), desk.model()
    for each, own in ((model, "own"), (other, "other's own")):
        _, claim = desk.begin(each)
        desk.publish({"shared": "s", "head": own}, claim=claim)
    digests = {part.name + str(part.bytes): part.sha256 for part in desk.all(VersionPart)}
    with desk.db.write() as session:
        session.get_one(Model, model).deleted_at = 1.0
    desk.remove_unwanted_runs()
    assert not desk.blobs.has(digests["head3"])
    assert desk.blobs.has(digests["shared1"]) and desk.blobs.has(digests["head11"])
    assert not desk.blobs.has(desk.all(Task, model_id=model)[0].held_out_sha256)
    assert desk.blobs.has(desk.all(Task, model_id=other)[0].held_out_sha256)


def test_a_deleted_model_keeps_its_versions_until_its_last_job_is_over(desk: Any) -> None:
    model = desk.model()
    desk.submit(model)
    desk.publish()
    desk.submit(model)
    claim = desk.claim()
    with desk.db.write() as session:
        session.get_one(Model, model).deleted_at = 1.0
        change_job_state(
            session, session.get_one(Job, claim.job_id), JobAction.CANCEL, desk.db.now(session)
        )
    parts = {part.sha256 for part in desk.all(VersionPart)}
    desk.remove_unwanted_runs()
    assert parts and all(
        desk.blobs.has(sha256) for sha256 in parts
    )  # the job may still read its parent
    claims.complete_pause_or_cancellation(desk.db, claim)
    desk.remove_unwanted_runs()
    assert not any(desk.blobs.has(sha256) for sha256 in parts)


def test_blobs_that_nothing_names_go_after_a_day(desk: Any) -> None:
    desk.submit(desk.model())
    orphan, young = desk.blob("left by a crash"), desk.blob("just stored")
    for key in desk.keys("blobs/"):
        if not key.endswith(young):
            os.utime(desk.folder / "store" / key, (1.0, 1.0))
    desk.remove_unwanted_runs()
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
    desk.remove_unwanted_runs()
    assert set(desk.keys("archives/")) == {*accepted, "archives/tsk_about_to_be"}
    assert len(accepted) == 1


def test_unused_blobs_are_looked_for_once_a_day(desk: Any) -> None:
    desk.remove_unwanted_runs()
    orphan = desk.blob("left by a crash")
    os.utime(desk.folder / "store" / desk.blobs.make_blob_key(orphan), (1.0, 1.0))
    desk.remove_unwanted_runs()
    assert desk.blobs.has(orphan)


def test_a_crash_between_marking_and_deleting_is_repaired(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.retention import retention

    desk.submit(desk.model(training_data_days=0.0))
    with monkeypatch.context() as patched:
        patched.setattr(retention, "delete_unused_blobs", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            desk.publish()
    train = desk.all(Task)[0].train_sha256
    assert desk.blobs.has(train)
    os.utime(desk.folder / "store" / desk.blobs.make_blob_key(train), (1.0, 1.0))
    desk.remove_unwanted_runs()
    assert not desk.blobs.has(train)


def test_an_attempt_keeps_what_it_has_not_registered_yet(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    claims.complete_pause_or_cancellation(desk.db, desk.claim())
    claim = desk.claim()
    for fence in (claim.fence - 1, claim.fence):
        desk.store.put_bytes(f"snapshots/{job_id}/{fence:08d}-000001/tensors", b"x")
    desk.remove_unwanted_runs()
    assert desk.keys("snapshots/") == [f"snapshots/{job_id}/{claim.fence:08d}-000001/tensors"]


def test_this_machines_copies_of_deleted_blobs_go_and_others_stay(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit(desk.model())
    parts = {"head": "h", "buffer": "images"}
    desk.publish(parts)
    head, buffer = desk.all(VersionPart)
    with monkeypatch.context() as hidden:  # as if the store had no files here
        hidden.setattr(desk.store, "get_local_path", lambda key: None)
        copies = [desk.blobs.fetch_verified_file(part.sha256) for part in (head, buffer)]
    with desk.db.write() as session:
        session.get_one(VersionPart, (buffer.version_id, buffer.name)).deleted_at = 1.0
    desk.remove_unwanted_runs()
    assert [path.exists() for path in copies] == [True, False]


@pytest.mark.parametrize("prefix", ["snapshots", "anytime"])
@pytest.mark.parametrize("end", ["published", "failed", "given back"])
def test_what_an_attempt_left_unregistered_goes_when_it_is_over(
    desk: Any, prefix: str, end: str
) -> None:
    job_id, claim = desk.begin()
    if end == "published":
        desk.publish(claim=claim)
    elif end == "failed":
        claims.fail_claimed_job_or_trial(desk.db, claim, "code", "x")
    else:
        claims.complete_pause_or_cancellation(desk.db, claim)
    desk.store.put_bytes(f"{prefix}/{job_id}/{claim.fence:08d}-000001/tensors", b"late")
    desk.remove_unwanted_runs()
    assert not desk.keys(f"{prefix}/")


@pytest.mark.parametrize("of", ["uploads", "writers of the store"])
def test_files_that_a_crash_left_half_written_go_after_a_day(desk: Any, of: str) -> None:
    """After a crash of a worker, only the worker restarts, so no other process looks there."""
    folder = (
        desk.settings.make_folder("spool") if of == "uploads" else desk.store.root / ".incoming"
    )
    for name in ("old", "new"):
        (folder / name).write_text("images")
    os.utime(folder / "old", (1.0, 1.0))
    desk.remove_unwanted_runs()
    assert [path.name for path in folder.iterdir()] == ["new"]
