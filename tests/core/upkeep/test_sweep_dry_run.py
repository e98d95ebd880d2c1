"""A dry run tells what a sweep removes, with reason and bytes, and changes nothing."""

import os
from typing import Any

import pytest

from core.database.tables import ExportedDownload, Model, StoredJobEvent, Task, Version
from core.scheduling import claim as claims
from core.upkeep.sweep_dry_run import list_sweep_removals


def leave_litter(desk: Any) -> None:
    """Leave something for most steps of a sweep.
    Two tasks of deleted models share their bytes.
    """
    models = [desk.model(), desk.model(), desk.model()]
    for model in models[:2]:
        desk.submit(model)
        desk.publish({"head": model}, [("new", 1, 1, 2)])
    failed = desk.submit(models[2])
    claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "x")
    shared = desk.blob("the same test images")
    with desk.db.write() as session:
        for task in session.query(Task):
            task.held_out_sha256 = shared
        for model in models[:2]:
            session.get_one(Model, model).deleted_at = 1.0
        session.add(StoredJobEvent(job_id=failed, type="log", data={}, at=1.0))
        version = session.query(Version).filter_by(model_id=models[2]).one().id
        session.add(
            ExportedDownload(
                version_id=version,
                format="x",
                sha256=desk.blob("a download"),
                bytes=10,
                created_at=1.0,
            )
        )
    desk.set(failed, finished_at=1.0)
    orphan = desk.blob("left by a crash")
    os.utime(desk.store.root / desk.blobs.make_blob_key(orphan), (1.0, 1.0))
    desk.store.put_bytes("snapshots/job_gone/00000001-000001/x", b"1234")


def read_everything(desk: Any) -> tuple[dict[str, int], list[Any]]:
    rows = [
        sorted(
            repr({c.key: getattr(row, c.key) for c in table.__table__.columns})
            for row in desk.all(table)
        )
        for table in (Task, StoredJobEvent, ExportedDownload, Version)
    ]
    return {info.key: info.size for info in desk.store.list("")}, rows


@pytest.mark.slow
@pytest.mark.both_databases
def test_what_is_told_is_what_a_sweep_removes_and_nothing_is_changed(desk: Any) -> None:
    leave_litter(desk)
    before = read_everything(desk)
    told = list_sweep_removals(desk.db, desk.store, desk.settings)
    assert read_everything(desk) == before
    desk.remove_unwanted_runs(whole=True)
    after = read_everything(desk)[0]
    gone = {key: size for key, size in before[0].items() if key not in after}
    objects = {removal.object: removal.bytes for removal in told if removal.modified}
    assert objects == gone and len(gone) >= 6
    assert len(objects) == sum(1 for removal in told if removal.modified)  # each once
    assert {removal.object for removal in told if not removal.modified} == {
        "1 rows of events", "1 rows of exports", "2 rows of parts",
    }  # fmt: skip
    reasons = {removal.object: removal.reason for removal in told}
    assert (
        reasons["snapshots/job_gone/00000001-000001/x"]
        == "snapshot of a job that is over, or superseded"
    )
    assert reasons["1 rows of events"] == "expired event or idempotency record"
    assert list_sweep_removals(desk.db, desk.store, desk.settings) == []


def test_the_grace_counts(desk: Any) -> None:
    desk.model()
    orphan = desk.blob("left by a crash")
    path = desk.store.root / desk.blobs.make_blob_key(orphan)
    os.utime(path, (path.stat().st_mtime - 7200,) * 2)
    assert list_sweep_removals(desk.db, desk.store, desk.settings) == []
    assert list_sweep_removals(desk.db, desk.store, desk.settings, grace_days=3 / 24) == []
    found = list_sweep_removals(desk.db, desk.store, desk.settings, grace_days=1 / 24)
    assert [(one.object, one.bytes) for one in found] == [
        (desk.blobs.make_blob_key(orphan), len("left by a crash"))
    ]
