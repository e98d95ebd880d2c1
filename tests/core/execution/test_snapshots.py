"""Snapshots in the store: registered under the fence, found again, never lost to a zombie."""

import hashlib
import json
from typing import Any

import pytest

from core.contract.jobs.job_event import SnapshotEvent
from core.database.tables import StoredJobEvent
from core.errors import LeaseLost
from core.execution import snapshots
from core.publishing import publish
from core.recipe.code_version import compute_learning_code_digest
from core.scheduling import claim as claims


def test_a_registered_snapshot_comes_back_byte_for_byte(desk: Any) -> None:
    job_id, claim = desk.begin()
    event = SnapshotEvent(path=desk.folder, stage=0, epoch=2, step=30)
    snapshots.upload_snapshot_and_delete_earlier_ones(
        desk.db, desk.store, claim, desk.snapshot("the weights"), event
    )
    desk.lose(claim)
    found = snapshots.fetch_snapshot(desk.db, desk.store, desk.claim(), desk.folder / "back")
    assert found is not None
    assert (found / "tensors.safetensors").read_text() == "the weights"
    assert desk.job(job_id).snapshot.epoch == 2


def test_without_a_snapshot_there_is_nothing_to_resume(desk: Any) -> None:
    desk.submit(desk.model())
    assert snapshots.fetch_snapshot(desk.db, desk.store, desk.claim(), desk.folder / "back") is None


def test_a_new_snapshot_replaces_the_earlier_one_in_the_store(desk: Any) -> None:
    job_id, claim = desk.begin()
    for content in ("one", "two", "three"):
        desk.register(claim, content)
    key = desk.job(job_id).snapshot.key
    assert desk.keys("snapshots/") == [key + "snapshot.json", key + "tensors.safetensors"]
    desk.lose(claim)
    later = desk.claim()
    desk.register(later, "four")
    assert len(desk.keys("snapshots/")) == 2
    found = snapshots.fetch_snapshot(desk.db, desk.store, later, desk.folder / "back")
    assert found is not None
    assert (found / "tensors.safetensors").read_text() == "four"


def test_a_zombie_cannot_register_or_remove_a_snapshot(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    zombie = desk.claim("zombie")
    desk.register(zombie, "good")
    desk.lose(zombie)
    before = desk.job(job_id).snapshot
    for _ in ("while nobody owns the job", "while another does"):
        with pytest.raises(LeaseLost):
            desk.register(zombie, "late")
        assert desk.job(job_id).snapshot == before
        assert desk.keys("snapshots/") == sorted(before.store_keys)
        owner = claims.claim_job(desk.db, "owner", 60)
        assert (
            owner is None
            or snapshots.fetch_snapshot(desk.db, desk.store, owner, desk.folder / "back")
            is not None
        )


def test_a_zombie_beside_a_newer_snapshot_changes_nothing(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    zombie = desk.claim("zombie")
    desk.lose(zombie)
    owner = desk.claim("owner")
    desk.register(owner, "new")
    with pytest.raises(LeaseLost):
        desk.register(zombie, "late")
    assert desk.job(job_id).snapshot.fence == owner.fence
    assert len(desk.keys("snapshots/")) == 2


def test_a_crash_before_the_row_leaves_the_earlier_snapshot_in_force(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, claim = desk.begin()
    desk.register(claim, "one")
    before = desk.job(job_id).snapshot
    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "lock_claimed_job", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            desk.register(claim, "two")
    assert desk.job(job_id).snapshot == before
    desk.lose(claim)
    again = desk.claim()
    assert snapshots.fetch_snapshot(desk.db, desk.store, again, desk.folder / "back") is not None
    desk.register(again, "three")
    assert len(desk.keys("snapshots/")) == 2  # what the crash left is gone too


def test_a_damaged_snapshot_is_left_out_and_said_so(desk: Any) -> None:

    job_id, claim = desk.begin()
    desk.register(claim, "weights")
    desk.store.put_bytes(desk.job(job_id).snapshot.key + "tensors.safetensors", b"weighty")
    assert snapshots.fetch_snapshot(desk.db, desk.store, claim, desk.folder / "back") is None
    assert [e.data["level"] for e in desk.all(StoredJobEvent, job_id=job_id, type="log")] == [
        "info",
        "warning",
    ]


@pytest.mark.parametrize(
    "change", [{"recipe": {"method": {"name": "ewc-online"}}}, {"parent_version": 4}]
)
def test_a_snapshot_of_another_recipe_or_parent_is_not_resumed(
    desk: Any, change: dict[str, Any]
) -> None:
    job_id, claim = desk.begin()
    desk.register(claim)
    desk.set(job_id, **change)
    assert snapshots.fetch_snapshot(desk.db, desk.store, claim, desk.folder / "back") is None


def test_a_snapshot_of_another_format_is_not_resumed_and_the_log_says_so(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, claim = desk.begin()
    desk.register(claim)
    monkeypatch.setattr(snapshots, "SNAPSHOT_FORMAT", snapshots.SNAPSHOT_FORMAT + 1)
    assert snapshots.fetch_snapshot(desk.db, desk.store, claim, desk.folder / "back") is None
    said = desk.messages(job_id)
    assert "the task is learned again: it was made by another recipe, parent or format" in said[-1]
    assert desk.job(job_id).strikes == 0


def make_snapshot_old(desk: Any, job_id: str, code: str) -> None:
    """Give the job's snapshot an origin that names a code version, as before formats had numbers."""
    job = desk.job(job_id)
    parts = {"recipe": job.recipe, "parent": job.parent_version, "code": code}
    origin = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    desk.set(job_id, snapshot=job.snapshot.model_copy(update={"origin": origin}))


@pytest.mark.parametrize(("code", "resumed"), [("the parent's", True), ("another", False)])
def test_a_snapshot_of_before_is_resumed_where_its_code_made_the_parent(
    desk: Any, code: str, resumed: bool
) -> None:
    model = desk.model()
    desk.submit(model)
    result = desk.result({"head": "1"}, [("new", 1, 9, 10)])
    publish.publish_or_hold_job_result(desk.db, desk.store, desk.claim(), result)
    job_id, claim = desk.begin(model)
    desk.register(claim)
    make_snapshot_old(
        desk, job_id, compute_learning_code_digest() if code == "the parent's" else code
    )
    found = snapshots.fetch_snapshot(desk.db, desk.store, claim, desk.folder / "back")
    assert (found is not None) is resumed


def test_a_snapshot_holds_plain_files_only(desk: Any) -> None:
    desk.submit(desk.model())
    folder = desk.snapshot()
    (folder / "inner").mkdir()
    with pytest.raises(ValueError, match="plain files"):
        snapshots.upload_snapshot_and_delete_earlier_ones(
            desk.db, desk.store, desk.claim(), folder, desk.taken
        )
