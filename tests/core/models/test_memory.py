"""Deleting a model's memory beside its jobs, on both databases."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select

from core.contract.jobs.snapshot import StoredSnapshot
from core.database.session import Database
from core.database.tables import Job, Owner, StoredJobEvent
from core.errors import Unavailable
from core.ids import new_id
from core.models import memory
from core.requests.actor import Actor
from core.retention import unreferenced_blobs
from core.storage import Blobs
from core.storage.folder import FolderStore
from tests.core.rows import (
    make_job_row,
    make_model_row,
    make_part_row,
    make_task_row,
    make_version_row,
)


class Desk:
    """A model whose versions 1 … n have a buffer, and jobs that start from one of them."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.store = FolderStore(folder / "store")
        self.store.create_folder_or_bucket()
        self.blobs = Blobs(self.store, folder / "cache")
        self._folder = folder
        self.actor = Actor(new_id("own"), None, "write")
        self.model = new_id("mdl")
        with db.write() as session:
            session.add(Owner(id=self.actor.owner_id, name=self.actor.owner_id, created_at=0.0))
            session.flush()
            session.add(make_model_row(self.model, self.actor.owner_id))

    def version(self, number: int) -> str:
        """Publish a version with a buffer of its own; returns the buffer's digest."""
        path = self._folder / "blob"
        path.write_text(f"buffer {number}")
        sha256, size = self.blobs.put_file(path)
        version = new_id("ver")
        with self.db.write() as session:
            session.add(make_version_row(version, self.model, number))
            session.flush()
            session.add(make_part_row(version, "buffer", sha256, size))
        return sha256

    def job(self, state: str, parent: int, *, snapshot: bool = False) -> str:
        with self.db.write() as session:
            place = session.query(Job).count() + 1
            task = new_id("tsk")
            session.add(make_task_row(task, self.model, place))
            session.flush()
            of = (self.model, self.actor.owner_id, task, place)
            job = make_job_row(new_id("job"), *of, state=state, parent_version=parent)
            job.fence = 7 if state in ("running", "pausing", "cancelling") else None
            if snapshot:
                key = f"snapshots/{job.id}/00000007-000001/"
                self.store.put_bytes(f"{key}tensors", b"images")
                job.snapshot = StoredSnapshot(
                    key=key, files={"tensors": ("", 6)}, fence=7, number=1
                )
            session.add(job)
            return job.id

    def read(self, job: str) -> Job:
        with self.db.read() as session:
            return session.get_one(Job, job)

    def delete(self) -> None:
        memory.delete_replay_memory(self.db, self.store, self.blobs, self.actor, self.model)


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Desk:
    return Desk(database, tmp_path)


def list_keys(desk: Desk, prefix: str) -> list[str]:
    return [info.key for info in desk.store.list(prefix)]


@pytest.mark.parametrize(("state", "after"), [("running", "queued"), ("pausing", "paused")])
def test_a_job_that_holds_the_memory_is_given_back_without_its_snapshot(
    desk: Desk, state: str, after: str
) -> None:
    desk.version(1)
    job = desk.job(state, 1, snapshot=True)
    desk.delete()
    row = desk.read(job)
    assert (row.state, row.fence, row.snapshot, row.strikes) == (after, None, None, 0)
    assert not list_keys(desk, "snapshots/")
    with desk.db.read() as session:
        events = session.scalars(
            select(StoredJobEvent).where(
                StoredJobEvent.job_id == job, StoredJobEvent.type == "state"
            )
        ).all()
    assert [e.data for e in events] == [
        {"state": after, "reason": "the memory of the model was deleted"}
    ]


@pytest.mark.parametrize("state", ["queued", "paused", "failed"])
def test_snapshots_of_waiting_jobs_go_too(desk: Desk, state: str) -> None:
    desk.version(1)
    job = desk.job(state, 1, snapshot=True)
    desk.delete()
    assert (desk.read(job).state, desk.read(job).snapshot) == (state, None)
    assert not list_keys(desk, "snapshots/")


def test_the_snapshot_of_a_job_that_is_retried_goes_though_its_parent_is_not_chosen_yet(
    desk: Desk,
) -> None:
    desk.version(1)
    job = desk.job("queued", 1, snapshot=True)
    with desk.db.write() as session:
        session.get_one(Job, job).parent_version = None
    desk.delete()
    assert desk.read(job).snapshot is None
    assert not list_keys(desk, "snapshots/")


def test_a_job_whose_parent_builds_on_a_version_that_remembers_is_restarted(desk: Desk) -> None:
    desk.version(1)
    job = desk.job("running", 2, snapshot=True)
    desk.delete()
    assert (desk.read(job).state, desk.read(job).snapshot) == ("queued", None)


def test_a_job_whose_parent_remembers_nothing_goes_on(desk: Desk) -> None:
    desk.version(1)
    job = desk.job("running", 0, snapshot=True)
    desk.delete()
    assert desk.read(job).state == "running" and desk.read(job).snapshot is not None
    assert len(list_keys(desk, "snapshots/")) == 1


def test_a_job_that_started_after_the_deletion_is_left_alone_by_a_second_one(desk: Desk) -> None:
    desk.version(1)
    desk.delete()
    job = desk.job("running", 1, snapshot=True)
    desk.delete()
    assert desk.read(job).state == "running" and desk.read(job).snapshot is not None


def test_a_version_published_since_is_deleted_by_a_second_call(desk: Desk) -> None:
    first = desk.version(1)
    desk.delete()
    second = desk.version(2)
    desk.delete()
    assert not desk.blobs.has(first) and not desk.blobs.has(second)


@pytest.mark.both_databases
def test_two_deletions_at_once_end_as_one(desk: Desk) -> None:
    digests = [desk.version(n) for n in range(1, 4)]
    job = desk.job("running", 3, snapshot=True)
    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(desk.delete) for _ in range(3)]:
            done.result()
    assert not any(desk.blobs.has(digest) for digest in digests)
    assert desk.read(job).state == "queued"


@pytest.mark.parametrize("state", ["validating", "cancelling"])
def test_a_job_that_has_not_read_the_memory_or_will_not_use_it_is_left_alone(
    desk: Desk, state: str
) -> None:
    desk.version(1)
    job = desk.job(state, 1)
    desk.delete()
    assert desk.read(job).state == state


def test_a_second_call_deletes_what_an_outage_left_of_the_first(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_store_unavailable(*_: object) -> None:
        raise Unavailable("The store does not answer.")

    digest = desk.version(1)
    with monkeypatch.context() as patch:
        patch.setattr(unreferenced_blobs, "delete_unreferenced_blobs", raise_store_unavailable)
        with pytest.raises(Unavailable):
            desk.delete()
    assert desk.blobs.has(digest)
    desk.delete()
    assert not desk.blobs.has(digest)
