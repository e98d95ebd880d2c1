"""Snapshots of running jobs: registered under the fence, fetched to resume, and removed.

A snapshot's key is `snapshots/<job>/<fence>-<number>/…`, so two attempts never write the same key.
It is valid once its row lists the digest of every file; before that it is garbage. A snapshot
records its origin (recipe, parent, format), and a job resumes only from one of its own origin.
After an update, a paused or interrupted job resumes from its snapshot. If the new code cannot,
because the format or the content does not fit, the job learns its task from the start and logs
that.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.jobs.job_event import SnapshotEvent
from core.contract.jobs.snapshot import StoredJobTrainingState, StoredSnapshot
from core.database import job_log
from core.database.session import Database
from core.database.tables import Job, StoredJobEvent, Version
from core.errors import LeaseLost, StoredObjectDamaged
from core.failpoints import hit_failpoint
from core.jobs.fence import JobClaim, lock_claimed_job
from core.storage import ObjectStorage

SNAPSHOT_FORMAT = 1
"""Format of snapshots; increase it when older snapshots must not be used any more."""
# The name of a file becomes the end of its key in the store.
_NAME = re.compile(r"[a-z0-9][a-zA-Z0-9._-]*")


def build_snapshot_key_prefix(job_id: str) -> str:
    """Return the store key prefix of a job's snapshots."""
    return f"snapshots/{job_id}/"


def parse_snapshot_key(key: str) -> tuple[int, int]:
    """Parse the fence (lease number) and snapshot number from a store key, to order snapshots.

    Later states of a job compare greater.
    """
    fence, _, number = key.split("/")[2].partition("-")
    return int(fence), int(number)


def digest_snapshot_inputs(job: Job) -> str:
    """Compute a digest of all inputs that a job's snapshot depends on; a job resumes only matching
    ones.

    A job resumes only from a snapshot with its own digest.
    """
    return _digest_job_inputs(job, format=SNAPSHOT_FORMAT)


def _list_resumable_snapshot_input_digests(session: Session, job: Job) -> list[str]:
    """Return the input digests of the snapshots from which a job can resume.

    Before format 1, the origin had the code version instead of the format: that of the job's
    parent, unless an update came between the two.
    """
    query = select(Version).where(
        Version.model_id == job.model_id, Version.number == job.parent_version
    )
    parent = session.scalars(query).one_or_none()
    code = None if parent is None else parent.manifest.code_version
    return [
        digest_snapshot_inputs(job),
        *([] if code is None else [_digest_job_inputs(job, code=code)]),
    ]


def _digest_job_inputs(job: Job, **made_by: str | int) -> str:
    # The resources of a job do not change what it learns; `resume_on` says where its snapshot may
    # be continued.
    recipe = {name: value for name, value in job.recipe.items() if name != "resources"}
    parts = {"recipe": recipe, "parent": job.parent_version, **made_by}
    # Sorted, since a database may return the fields of JSON in another order.
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@contextmanager
def delete_uploads_if_job_taken_over(
    store: ObjectStorage, key: str, files: Collection[str]
) -> Iterator[None]:
    """Context manager that deletes uploaded files if another worker has taken over the job."""
    try:
        yield
    except LeaseLost:
        for name in files:  # no other claim uses these objects, and they were never registered
            store.delete(key + name)
        raise


def upload_snapshot_and_delete_earlier_ones(
    db: Database, store: ObjectStorage, claim: JobClaim, path: Path, event: SnapshotEvent
) -> None:
    """Upload a complete snapshot of a job, register it, and delete the job's earlier snapshots.

    Args:
        path: folder with plain files only.
        event: event of the child; its stage, epoch and step are stored.

    Raises:
        LeaseLost: the job belongs to another claim; nothing was registered or deleted.
    """
    with db.read() as session:
        # A new number each time: files of a registered snapshot are never overwritten.
        number = find_next_stored_training_state_number(
            session.get_one(Job, claim.job_id).snapshot, claim
        )
    key = f"{build_snapshot_key_prefix(claim.job_id)}{claim.fence:08d}-{number:06d}/"
    files = store_files_under_key_prefix(store, key, sorted(path.iterdir()))
    hit_failpoint("snapshot-stored")
    where = {"stage": event.stage, "epoch": event.epoch, "step": event.step}
    with delete_uploads_if_job_taken_over(store, key, files), db.write() as session:
        job = lock_claimed_job(session, claim)
        job.snapshot = StoredSnapshot(
            key=key,
            files=files,
            fence=claim.fence,
            number=number,
            origin=digest_snapshot_inputs(job),
            **where,
        )
        # A snapshot is progress, and only losses without progress count against a job.
        job.strikes = 0
        job.resume_on = _choose_resume_device(job, claim)
        session.add(StoredJobEvent(job_id=job.id, type="snapshot", data=where, at=db.now(session)))
    hit_failpoint("snapshot-registered")
    delete_older_training_states_of_job(
        store, build_snapshot_key_prefix(claim.job_id), claim.fence, number
    )


def _choose_resume_device(job: Job, claim: JobClaim) -> str | None:
    """Return the kind of device on which a job must resume from its snapshot, or None for any.

    None if the recipe leaves that open, or the worker does not say what it ran on.
    """
    may_move = job.recipe.get("resources", {}).get("resume") == "any"
    return None if may_move or claim.device == "auto" else claim.device


def find_next_stored_training_state_number(
    registered: StoredJobTrainingState | None, claim: JobClaim
) -> int:
    """Return the number of the next training state that a job attempt stores, from 1.

    Args:
        registered: state of the job at present.
    """
    return (
        registered.number + 1 if registered is not None and registered.fence == claim.fence else 1
    )


def store_files_under_key_prefix(
    store: ObjectStorage, key: str, files: Sequence[Path]
) -> dict[str, tuple[str, int]]:
    """Upload files to the store under a key prefix; return (SHA-256, bytes) by name.

    Raises:
        ValueError: an entry is not a plain file.
    """
    stored: dict[str, tuple[str, int]] = {}
    for file in files:
        if not _NAME.fullmatch(file.name) or not file.is_file():
            raise ValueError(f"A state of a job holds plain files only, not {file.name!r}.")
        with file.open("rb") as handle:
            stored[file.name] = (
                hashlib.file_digest(handle, "sha256").hexdigest(),
                file.stat().st_size,
            )
        store.put_file(key + file.name, file)
    return stored


def delete_older_training_states_of_job(
    store: ObjectStorage, prefix: str, fence: int, number: int
) -> None:
    """Delete all training states that a job stored before this one, registered or not."""
    # Listed to the end first, since deletions could disturb the listing.
    for info in list(store.list(prefix)):
        if parse_snapshot_key(info.key) < (fence, number):
            store.delete(info.key)


def fetch_snapshot(
    db: Database, store: ObjectStorage, claim: JobClaim, folder: Path
) -> Path | None:
    """Download the job's snapshot into `folder`, and return the folder.

    Return None if there is none to resume from. A snapshot that is damaged, or has another recipe,
    parent or format, is ignored: the job starts over, and logs that.
    """
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        snapshot = job.snapshot
        fits = snapshot is not None and snapshot.origin in _list_resumable_snapshot_input_digests(
            session, job
        )
    if snapshot is None:
        return None
    # Another recipe or parent would end in other bits than an undisturbed job.
    if not fits:
        _log_unusable_snapshot_and_untie_device(
            db, claim, "it was made by another recipe, parent or format"
        )
        return None
    folder.mkdir(parents=True)
    try:
        for name, (sha256, _) in snapshot.files.items():
            digest = hashlib.sha256()
            with (folder / name).open("wb") as handle:
                for chunk in store.read(snapshot.key + name):
                    digest.update(chunk)
                    handle.write(chunk)
            # Snapshots exist for minutes and are not scrubbed, so they are verified when they are
            # used.
            if digest.hexdigest() != sha256:
                raise StoredObjectDamaged(
                    f"{snapshot.key}{name} has another digest than was registered."
                )
    except StoredObjectDamaged as error:
        _log_unusable_snapshot_and_untie_device(db, claim, error.detail)
        return None
    return folder


def _log_unusable_snapshot_and_untie_device(db: Database, claim: JobClaim, why: str) -> None:
    """Log that a job's snapshot is unusable, and let the job run on any device."""
    with db.write() as session:
        job = lock_claimed_job(session, claim)
        # Without a snapshot, nothing ties the job to the kind of device that it began on.
        job.resume_on = None
        text = f"The snapshot is unusable, the task is learned again: {why}"
        job_log.add_job_log_line(session, job.id, ("warning", text), db.now(session))
