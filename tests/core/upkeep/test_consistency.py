"""Drift between database and store, in both directions, on both databases and both stores."""

import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.database.session import Database
from core.database.tables import ExportedDownload, Task, Version, VersionPart
from core.scheduling import claim as claims
from core.settings import Settings
from core.storage import Blobs, open_object_store
from core.upkeep import consistency

DAY_S = 86_400.0


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.campaign)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    if request.param == "folder":
        return Settings(
            data_dir=tmp_path / "data", store_url=f"file://{tmp_path / 'store'}", threads=1
        )
    found: Settings = request.getfixturevalue("s3").settings(
        tmp_path / "data", prefix=f"t/{secrets.token_hex(4)}"
    )
    return found


@pytest.fixture
def desk(desk: Any, settings: Settings) -> Any:
    """A model with a version, a running job with a snapshot, a batch that waits, and a download."""
    desk.settings, desk.store = settings, open_object_store(settings)
    desk.store.create_folder_or_bucket()
    desk.submit(model := desk.model())
    desk.publish({"head": "h", "buffer": "b"}, [("new", 1, 1, 2)])
    desk.running = desk.submit(model)
    desk.running_claim = desk.claim()
    desk.register(desk.running_claim)
    desk.submit(desk.model(), decoded=False, archive=b"zip")
    desk.download = desk.blob("a download")
    with desk.db.write() as session:
        version = session.query(Version).filter_by(number=1).one().id
        now = desk.db.now(session)
        session.add(
            ExportedDownload(
                version_id=version, format="x", sha256=desk.download, bytes=10, created_at=now
            )
        )
        for task in session.query(Task).filter(Task.archive_key.is_not(None)):
            task.bytes = 3
            task.sha256 = hashlib.sha256(b"zip").hexdigest()
    return desk


def open_blobs(desk: Any) -> Blobs:
    return Blobs(desk.store, desk.settings.make_folder("cache"))


def find_inconsistencies(desk: Any, **options: Any) -> list[tuple[str, str]]:
    return sorted(
        (d.kind, d.object)
        for d in consistency.find_store_inconsistencies(
            desk.db, desk.store, desk.settings, **options
        )
    )


def repair_inconsistencies(desk: Any) -> list[tuple[str, str]]:
    """Repair the store and return what is left. A second repair must leave the same."""
    for _ in range(2):
        found = consistency.find_store_inconsistencies(
            desk.db, desk.store, desk.settings, verify=True
        )
        consistency.repair_store_and_run_sweep(
            desk.db, desk.store, open_blobs(desk), desk.settings, found
        )
    return find_inconsistencies(desk, verify=True)


def move_clock_forward(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    real = Database.now
    monkeypatch.setattr(Database, "now", lambda self, session: real(self, session) + days * DAY_S)


def find_part_key(desk: Any, name: str) -> str:
    with desk.db.read() as session:
        return Blobs.make_blob_key(session.query(VersionPart).filter_by(name=name).one().sha256)


def test_every_kind_of_object_is_named_and_one_of_each_that_is_missing_is_told(desk: Any) -> None:
    assert find_inconsistencies(desk, verify=True) == []
    keys = {one.key for one in consistency.iterate_referenced_objects(desk.db)}
    assert {key.split("/")[0] for key in keys} == {"blobs", "archives", "snapshots"}
    for key in keys:
        desk.store.delete(key)
    assert find_inconsistencies(desk) == sorted(("missing", key) for key in keys)


def test_wrong_sizes_are_told_at_once_and_wrong_bytes_when_all_is_read(desk: Any) -> None:
    desk.store.put_bytes(find_part_key(desk, "head"), b"longer")
    desk.store.put_bytes(find_part_key(desk, "buffer"), b"x")
    assert find_inconsistencies(desk) == [("size", find_part_key(desk, "head"))]
    assert find_inconsistencies(desk, verify=True) == sorted(
        [("digest", find_part_key(desk, "buffer")), ("size", find_part_key(desk, "head"))]
    )


def test_a_part_comes_back_from_this_machines_sound_copy_alone(desk: Any) -> None:
    head, buffer = find_part_key(desk, "head"), find_part_key(desk, "buffer")
    for key, copy in ((head, b"h"), (buffer, b"wrong")):
        path = desk.settings.make_folder("cache") / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(copy)
        desk.store.delete(key)
    assert repair_inconsistencies(desk) == [("missing", buffer)]
    assert b"".join(desk.store.read(head)) == b"h"


def test_a_damaged_part_without_a_copy_is_named_and_left_alone(desk: Any) -> None:
    desk.store.put_bytes(find_part_key(desk, "head"), b"x")
    assert repair_inconsistencies(desk) == [("digest", find_part_key(desk, "head"))]
    assert b"".join(desk.store.read(find_part_key(desk, "head"))) == b"x"


@pytest.mark.parametrize("damaged", [False, True])
def test_a_download_that_is_missing_or_damaged_is_forgotten(desk: Any, damaged: bool) -> None:
    key = Blobs.make_blob_key(desk.download)
    desk.store.put_bytes(key, b"not so long"[:10]) if damaged else desk.store.delete(key)
    assert find_inconsistencies(desk, verify=True) == [("digest" if damaged else "missing", key)]
    assert repair_inconsistencies(desk) == []
    assert desk.all(ExportedDownload) == [] and desk.store.stat(key) is None


@pytest.mark.slow
def test_a_damaged_snapshot_is_forgotten_once_no_worker_has_the_job(desk: Any) -> None:
    key = desk.job(desk.running).snapshot.key + "tensors.safetensors"
    desk.store.put_bytes(key, b"WEIGHTS")
    assert repair_inconsistencies(desk) == [("digest", key)]
    claims.complete_pause_or_cancellation(desk.db, desk.running_claim)
    assert repair_inconsistencies(desk) == []
    assert desk.job(desk.running).snapshot is None


def test_what_nothing_names_is_drift_after_its_grace_and_a_day_and_goes(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = Blobs.make_blob_key(desk.blob("left by a crash"))
    desk.store.put_bytes("archives/tsk_never", b"left by a crash")
    desk.store.put_bytes("snapshots/job_never/00000001-000001/x", b"left by a crash")
    desk.store.put_bytes("else/where", b"not ours")
    with monkeypatch.context() as patch:
        move_clock_forward(patch, 1.9)
        assert find_inconsistencies(desk) == sorted(
            [
                ("foreign", "else/where"),
                ("lease", desk.running),
                ("overdue", "snapshots/job_never/00000001-000001/x"),
            ]
        )
    with monkeypatch.context() as patch:
        move_clock_forward(patch, 2.1)
        assert ("overdue", orphan) in find_inconsistencies(desk) and (
            "overdue",
            "archives/tsk_never",
        ) in find_inconsistencies(desk)
        assert repair_inconsistencies(desk) == [("foreign", "else/where")]
    assert desk.store.stat(orphan) is None and desk.store.stat("archives/tsk_never") is None
    assert (
        desk.job(desk.running).state == "queued"
    )  # taken from the worker that was silent for two days
    assert desk.store.stat(find_part_key(desk, "head")) is not None


def test_what_vanishes_or_is_named_no_more_while_it_is_looked_at_is_no_drift(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing and the rows are older than the truth: a sweep went on meanwhile."""
    real: Callable[[Database], Any] = consistency.iterate_referenced_objects

    def then_deleted(db: Database) -> Any:
        found = list(real(db))
        with desk.db.write() as session:
            session.query(VersionPart).filter_by(name="buffer").one().deleted_at = 1.0
        desk.store.delete(buffer)
        return iter(found)

    buffer = find_part_key(desk, "buffer")
    monkeypatch.setattr(consistency, "iterate_referenced_objects", then_deleted)
    assert find_inconsistencies(desk, verify=True) == []
