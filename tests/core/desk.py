"""Rows, stores and fake child results for tests of the workers, without any learning."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.jobs.job_event import SnapshotEvent
from core.contract.manifest import Manifest
from core.database import measurements
from core.database.jobs import change_job_state, lock_job
from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import JobAction, JobState
from core.database.tables import (
    Alias,
    AliasMove,
    Job,
    Model,
    Owner,
    StoredJobEvent,
    Task,
    Version,
    VersionPart,
    VersionTaskResult,
)
from core.execution import snapshots
from core.ids import new_id
from core.jobs.fence import JobClaim
from core.jobs.jobs import build_queued_taskless_job
from core.publishing.publish import JobVersionStatus, publish_or_hold_job_result
from core.requests.actor import Actor
from core.retention import references
from core.scheduling import claim as claims
from core.settings import Settings
from core.storage import Blobs
from core.storage.folder import FolderStore
from core.upkeep import sweep
from core.versions import aliases
from tests.core.post import Post
from tests.core.rows import make_job_row, make_model_row, make_task_row, make_version_row
from tools.service import link_shared_test_catalogue
from worker.loop import Worker

SETTINGS = Settings(threads=1)
"""Settings that are read only once, since the environment is the same for all tests."""
IN_ORDER = {
    Version: "number",
    VersionPart: "position",
    StoredJobEvent: "id",
    AliasMove: "id",
    VersionTaskResult: "version",
}


@pytest.fixture(scope="module", autouse=True)
def without_fsync() -> Iterator[None]:
    """Disable fsync to save time: no test here loses power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@dataclass
class Desk:
    """A database and a store, with shortcuts for what the API would have written."""

    db: Database
    store: FolderStore
    settings: Settings
    folder: Path
    owner: str = ""
    names: list[str] = field(default_factory=list)

    @property
    def blobs(self) -> Blobs:
        return Blobs(self.store, self.folder / "cache")

    def new_owner(self, name: str) -> str:
        """Create an owner, to whom all further models and jobs of the desk belong."""
        with self.db.write() as session:
            self.owner = new_id("own")
            session.add(Owner(id=self.owner, name=name, created_at=0.0))
        return self.owner

    def model(self, scenario: str = "class", **values: Any) -> str:
        if not self.owner:
            self.new_owner("team")
        with self.db.write() as session:
            usual = {
                "name": new_id("mdl"),
                "architecture": {"name": "small-cnn"},
                "scenario": scenario,
            }
            model = make_model_row(new_id("mdl"), self.owner, **{**usual, **values})
            session.add(model)
            session.flush()
            known = {"scenario": scenario, "architecture": model.architecture, "image": model.image}
            begun = {
                "version": 0,
                "tasks": [],
                "normalise": None,
                "init": {"kind": "random", "seed": 0},
            }
            manifest = Manifest.from_json({**known, **begun})
            gate = {"passed": True, "checks": []}
            session.add(make_version_row(new_id("ver"), model.id, 0, gate=gate, manifest=manifest))
            session.add(Alias(model_id=model.id, name="production", version=0, updated_at=0.0))
            return model.id

    def submit(
        self, model_id: str, *, decoded: bool = True, archive: bytes = b"", **values: Any
    ) -> str:
        """Add a task and its job; a decoded task has its dataset blobs in the store."""
        with self.db.write() as session:
            model = session.get_one(Model, model_id)
            number = model.next_task
            model.next_task += 1
            task = make_task_row(new_id("tsk"), model_id, number, bytes=len(archive))
            task.sha256 = hashlib.sha256(archive).hexdigest()
            task.classes = {f"{number}a": 4, f"{number}b": 4}
            if decoded:
                task.train_sha256 = self.blob(f"train {model_id} {number}")
                task.held_out_sha256 = self.blob(f"held-out {model_id} {number}")
                task.n_train, task.n_held_out = 8, 2
            else:
                task.archive_key = f"archives/{task.id}"
                self.store.put_bytes(task.archive_key, archive)
            session.add(task)
            session.flush()
            return self._job(session, model, task, **values)

    def check(self, model_id: str, archive: bytes = b"zip", **values: Any) -> str:
        """Add a job that checks a batch, independent of the model's lineage."""
        with self.db.write() as session:
            job = build_queued_taskless_job(
                session.get_one(Model, model_id), JobKind.VALIDATE, {}, {}, 0.0
            )
            job.archive_key, job.archive_bytes = f"archives/{job.id}", len(archive)
            job.archive_sha256 = hashlib.sha256(archive).hexdigest()
            known = {"sha256": job.archive_sha256, "media_type": "zip", "warnings": []}
            job.report = {"valid": None, "report": {"duplicates_policy": "keep"}, **known}
            for name, value in values.items():
                setattr(job, name, value)
            self.store.put_bytes(f"archives/{job.id}", archive)
            session.add(job)
            session.flush()
            return job.id

    def again(self, job_id: str) -> str:
        """Add a second job for the same task, as a retry of a held version does."""
        with self.db.write() as session:
            job = session.get_one(Job, job_id)
            model = session.get_one(Model, job.model_id)
            task = session.get_one(Task, job.task_id)
            return self._job(session, model, task, retry_of=job_id, again=True)

    def _job(self, session: Any, model: Model, task: Task, **values: Any) -> str:
        usual = {"recipe": {"method": {"name": "finetune"}, "seed": 0}, "place": model.next_place}
        of = (model.id, model.owner_id, task.id, task.number)
        job = make_job_row(new_id("job"), *of, **{**usual, **values})
        model.next_place += 1
        session.add(job)
        session.flush()
        return job.id

    def roll_back(self, model_id: str, to: int | None = None) -> dict[str, Any]:
        """Roll production back, as a user does."""
        return aliases.roll_alias_back(
            self.db,
            self.actor,
            model_id,
            "production",
            aliases.AliasMoveReasonAndSeenVersion("worse"),
            to,
        )[0]

    def blob(self, text: str) -> str:
        path = self.folder / "blob"
        path.write_text(text)
        return self.blobs.put_file(path)[0]

    def claim(self, worker: str = "w1", lease_s: float = 60.0) -> JobClaim:
        claim = claims.claim_job(self.db, worker, lease_s)
        assert claim is not None
        return claim

    def begin(self, model_id: str | None = None, **values: Any) -> tuple[str, JobClaim]:
        """Send a batch and claim its job."""
        job_id = self.submit(model_id or self.model(), **values)
        claim = self.claim()
        assert claim.job_id == job_id
        return job_id, claim

    def expire(self, claim: JobClaim) -> None:
        """Let the lease run out."""
        self.set(claim.job_id, lease_until=1.0)

    def lose(self, claim: JobClaim) -> None:
        """Let the lease run out and take the job back."""
        self.expire(claim)
        claims.take_back_jobs_with_expired_lease(self.db)

    def lose_blobs_before_hold(self, patch: pytest.MonkeyPatch) -> None:
        """Delete all blobs when a transaction is about to hold those that were stored for it."""
        share = references.lock_blob_references_against_deletion

        def share_late(session: Session) -> None:
            for key in self.keys("blobs/"):
                self.store.delete(key)
            share(session)

        patch.setattr(references, "lock_blob_references_against_deletion", share_late)

    def act(self, job_id: str, action: JobAction) -> JobState:
        """Change the state of a job as a request does."""
        with self.db.write() as session:
            job = lock_job(session, job_id)
            assert job is not None
            return change_job_state(session, job, action, self.db.now(session))

    def register(self, claim: JobClaim, content: str = "weights") -> None:
        """Keep a snapshot of a claimed job."""
        snapshots.upload_snapshot_and_delete_earlier_ones(
            self.db, self.store, claim, self.snapshot(content), self.taken
        )

    def publish(
        self,
        parts: dict[str, str] | None = None,
        cells: Any = (("new", 1, 1, 2),),
        *,
        claim: JobClaim | None = None,
        **more: Any,
    ) -> JobVersionStatus:
        """Publish the result of a claimed job; without a claim, of the next job."""
        result = self.result(parts or {"head": "h"}, list(cells), **more)
        return publish_or_hold_job_result(self.db, self.store, claim or self.claim(), result)

    def remove_unwanted_runs(self, **options: Any) -> None:
        sweep.run_sweep(
            self.db, self.store, self.blobs, self.settings, sweep.SweepOptions(**options)
        )

    def messages(self, job_id: str) -> list[str]:
        """Return the lines of a job's log."""
        return [
            event.data["message"] for event in self.all(StoredJobEvent, job_id=job_id, type="log")
        ]

    @property
    def actor(self) -> Actor:
        return Actor(self.owner, None, "write")

    def now(self) -> float:
        with self.db.read() as session:
            return self.db.now(session)

    def change(self, table: Any, key: Any, **values: Any) -> None:
        """Write columns of a row."""
        with self.db.write() as session:
            row = session.get_one(table, key)
            for name, value in values.items():
                setattr(row, name, value)

    def set(self, job_id: str, **values: Any) -> None:
        self.change(Job, job_id, **values)

    def job(self, job_id: str) -> Job:
        with self.db.read() as session:
            return session.get_one(Job, job_id)

    def state(self, job_id: str) -> JobState:
        return JobState(self.job(job_id).state)

    def task(self, job_id: str) -> Task:
        with self.db.read() as session:
            return session.get_one(Task, session.get_one(Job, job_id).task_id)

    def task_of(self, model_id: str, number: int) -> Task:
        (task,) = self.all(Task, model_id=model_id, number=number)
        found: Task = task
        return found

    def all(self, table: Any, **values: Any) -> list[Any]:
        with self.db.read() as session:
            query, key = select(table).filter_by(**values), IN_ORDER.get(table)
            return list(
                session.execute(query.order_by(getattr(table, key)) if key else query).scalars()
            )

    def manifests(self, model_id: str) -> list[dict[str, Any]]:
        """Return the manifests of the model's versions, as answers show them."""
        versions = self.all(Version, model_id=model_id)
        with self.db.read() as session:
            figures = measurements.read_version_measurements(
                session, model_id, [v.number for v in versions]
            )
        return [{**v.manifest.to_json(), **figures[v.number]} for v in versions]

    def aliases(self, model_id: str) -> dict[str, int]:
        return {alias.name: alias.version for alias in self.all(Alias, model_id=model_id)}

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(info.key for info in self.store.list(prefix))

    def result(
        self, parts: dict[str, str], cells: list[tuple[str, int, int, int]], **more: Any
    ) -> Path:
        """Write a child's result folder, and return it.

        Args:
            parts: part name → content.
            cells: (version, task, correct, total) for each.
            more: other fields.
        """
        folder = self.folder / new_id("ver")
        (folder / "parts").mkdir(parents=True)
        for name, content in parts.items():
            (folder / "parts" / f"{name}.safetensors").write_text(content)
        document = {
            "parts": [
                {"name": name, "type": name.split(".")[0], "file": f"parts/{name}.safetensors"}
                for name in parts
            ],
            "classes": ["1a", "1b"],
            "heads": [],
            "results": [
                {"version": v, "task": t, "correct": c, "total": n, "per_class": {"x": [c, n]}}
                for v, t, c, n in cells
            ],
            "method": {"name": "finetune", "hyper": {}, "state": {}},
            "update_norm": {"backbone": 1.0, "head": 0.5, "relative": 0.1},
            "normalise": {"mean": [0.5], "std": [0.25]},
            "environment": {"torch": "2", "cpu_capability": "x", "threads": 1, "device": "cpu"},
            **{"steps": 3, "images": 24, "trainable": 10, "parameters": 20, "warnings": [], **more},
        }
        (folder / "result.json").write_text(json.dumps(document))
        return folder

    @property
    def taken(self) -> SnapshotEvent:
        """Return a child's event about its snapshot."""
        return SnapshotEvent(path=self.folder, stage=0, epoch=1, step=10)

    def snapshot(self, content: str = "weights") -> Path:
        folder = self.folder / new_id("ver")
        folder.mkdir()
        (folder / "snapshot.json").write_text("{}")
        (folder / "tensors.safetensors").write_text(content)
        return folder


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Desk:
    store = FolderStore(tmp_path / "store")
    store.create_folder_or_bucket()
    settings = SETTINGS.model_copy(update={"data_dir": tmp_path / "data"})
    settings.data_dir.mkdir()
    link_shared_test_catalogue(settings.data_dir)
    return Desk(database, store, settings, tmp_path)


@pytest.fixture
def worker(desk: Desk) -> Iterator[Callable[..., Worker]]:
    """Return a function that makes workers whose learning processes could not even start.

    Its arguments are settings.
    """
    with ExitStack() as made:

        def make_worker(**values: Any) -> Worker:
            usual = {
                "store_url": f"file://{desk.store.root}",
                "database_url": desk.db.url,
                "hub": "off",
            }
            settings = Settings(data_dir=desk.settings.data_dir, threads=1, **{**usual, **values})
            one = Worker(settings, ring=lambda _job: None, zygote_command=("false",))
            made.callback(one.close_worker)
            return one

        yield make_worker


@pytest.fixture
def post(desk: Desk) -> Post:
    """Return an outbox on the desk, for receivers on the loopback interface."""
    desk.model()  # its owner
    return Post(desk, desk.settings.model_copy(update={"webhook_allow": "127.0.0.0/8"}))
