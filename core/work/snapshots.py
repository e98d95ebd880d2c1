"""Snapshots of running jobs in the store: registered under the fence, found again, removed.

A snapshot's key is `snapshots/<job>/<fence>-<number>/…`, so no two attempts write the same key. It
counts once its row names it with the digest of every file; before that it is only garbage. A snapshot
says what made it (recipe, parent, format): a job never resumes from one that something else made. After an update a
job that was paused or interrupted goes on from its snapshot. Where the new code cannot, because the format is another
or what the snapshot holds does not fit, it learns its task anew and says so in its log.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import job_log
from core.db.session import Database
from core.db.tables import Event, Job, Version
from core.errors import LeaseLost, StoreCorrupt
from core.failpoints import hit
from core.protocol.job_event import SnapshotEvent
from core.protocol.snapshot import StoredSnapshot, StoredState
from core.store import Store
from core.work.fence import Claim, hold

SNAPSHOT_FORMAT = 1
"""Raised when snapshots of before must not be used any more."""
_NAME = re.compile(r"[a-z0-9][a-zA-Z0-9._-]*")


def prefix_of(job_id: str) -> str:
    """Where a job's snapshots lie in the store."""
    return f"snapshots/{job_id}/"


def order_of(key: str) -> tuple[int, int]:
    """(fence, number) of the key of a snapshot or best state; later ones of a job compare greater."""
    fence, _, number = key.split("/")[2].partition("-")
    return int(fence), int(number)


def origin(job: Job) -> str:
    """A digest of what a snapshot depends on: another one must not resume from it."""
    return _digest(job, format=SNAPSHOT_FORMAT)


def _origins(session: Session, job: Job) -> list[str]:
    """What the origin of a snapshot may be that the job can go on from.

    Before format 1 it named the code version in place of the format: that of the job's parent, unless an update came
    between the two.
    """
    query = select(Version).where(Version.model_id == job.model_id, Version.number == job.parent_version)
    parent = session.scalars(query).one_or_none()
    code = None if parent is None else parent.manifest.code_version
    return [origin(job), *([] if code is None else [_digest(job, code=code)])]


def _digest(job: Job, **made_by: str | int) -> str:
    # Where a job may run changes nothing of what it learns: `resume_on` says where its snapshot may be continued.
    recipe = {name: value for name, value in job.recipe.items() if name != "resources"}
    parts = {"recipe": recipe, "parent": job.parent_version, **made_by}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def register(db: Database, store: Store, claim: Claim, path: Path, event: SnapshotEvent) -> None:
    """Upload a complete snapshot folder, make it the job's, and delete the job's earlier ones.

    Args:
        path: the folder; plain files only.
        event: the child's event; its stage, epoch and step are kept.

    Raises:
        LeaseLost: the claim is not the job's any more; nothing was registered or deleted.
    """
    with db.read() as session:
        number = next_number(session.get_one(Job, claim.job_id).snapshot, claim)
    key = f"{prefix_of(claim.job_id)}{claim.fence:08d}-{number:06d}/"
    files = upload(store, key, sorted(path.iterdir()))
    hit("snapshot-stored")
    where = {"stage": event.stage, "epoch": event.epoch, "step": event.step}
    try:
        with db.write() as session:
            job = hold(session, claim)
            job.snapshot = StoredSnapshot(
                key=key, files=files, fence=claim.fence, number=number, origin=origin(job), **where
            )
            job.strikes = 0
            job.resume_on = _resume_on(job, claim)
            session.add(Event(job_id=job.id, type="snapshot", data=where, at=db.now(session)))
    except LeaseLost:
        for name in files:  # ours alone, and never registered
            store.delete(key + name)
        raise
    hit("snapshot-registered")
    drop_older(store, prefix_of(claim.job_id), claim.fence, number)


def _resume_on(job: Job, claim: Claim) -> str | None:
    """Return the kind of device that the job must continue on from this snapshot; None: its recipe leaves that open,
    or the worker does not say what it ran on."""
    may_move = job.recipe.get("resources", {}).get("resume") == "any"
    return None if may_move or claim.device == "auto" else claim.device


def next_number(known: StoredState | None, claim: Claim) -> int:
    """Of the next state that an attempt stores, from 1; `known`: the job's at present."""
    return known.number + 1 if known is not None and known.fence == claim.fence else 1


def upload(store: Store, key: str, files: Sequence[Path]) -> dict[str, tuple[str, int]]:
    """Store files under `key` and their names; return (sha256, bytes) by name.

    Raises:
        ValueError: one is no plain file.
    """
    stored: dict[str, tuple[str, int]] = {}
    for file in files:
        if not _NAME.fullmatch(file.name) or not file.is_file():
            raise ValueError(f"A state of a job holds plain files only, not {file.name!r}.")
        with file.open("rb") as handle:
            stored[file.name] = hashlib.file_digest(handle, "sha256").hexdigest(), file.stat().st_size
        store.put_file(key + file.name, file)
    return stored


def drop_older(store: Store, prefix: str, fence: int, number: int) -> None:
    """Delete what a job stored under `prefix` before this one, registered or not."""
    for info in list(store.list(prefix)):
        if order_of(info.key) < (fence, number):
            store.delete(info.key)


def fetch(db: Database, store: Store, claim: Claim, folder: Path) -> Path | None:
    """Copy the job's snapshot into `folder` and return it; None when there is none to resume from.

    One that is damaged, or made by another recipe, parent or format, is left out: the job starts anew, and says so.
    """
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        snapshot = job.snapshot
        fits = snapshot is not None and snapshot.origin in _origins(session, job)
    if snapshot is None:
        return None
    if not fits:
        _leave_out(db, claim, "it was made by another recipe, parent or format")
        return None
    folder.mkdir(parents=True)
    try:
        for name, (sha256, _) in snapshot.files.items():
            digest = hashlib.sha256()
            with (folder / name).open("wb") as handle:
                for chunk in store.read(snapshot.key + name):
                    digest.update(chunk)
                    handle.write(chunk)
            if digest.hexdigest() != sha256:
                raise StoreCorrupt(f"{snapshot.key}{name} has another digest than was registered.")
    except StoreCorrupt as error:
        _leave_out(db, claim, error.detail)
        return None
    return folder


def _leave_out(db: Database, claim: Claim, why: str) -> None:
    with db.write() as session:
        job = hold(session, claim)
        job.resume_on = None
        said = f"The snapshot is unusable, the task is learned anew: {why}"
        job_log.add(session, job.id, ("warning", said), db.now(session))
