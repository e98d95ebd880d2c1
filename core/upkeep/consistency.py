"""Consistency check of database and store in both directions, and safe repairs.

It finds rows that refer to an object that is missing, has another size, or (on request) another
digest; objects without a row and other things that a sweep should have removed a day ago; and
expired leases that were not taken back. It works beside a running service: suspicious rows and
objects are checked again before they are reported, and objects may vanish meanwhile. A part of a
version, a dataset or an upload is never changed unless this machine has a sound copy; it is
reported, to be restored from a backup.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from core.database import jobs as job_rows
from core.database.session import Database
from core.database.states import LEASED
from core.database.tables import (
    ExportedDownload,
    Job,
    Model,
    StoredUploadPiece,
    Task,
    UploadedBase,
    Version,
    VersionPart,
    VersionTaskResult,
)
from core.errors import StoredObjectDamaged
from core.retention import archives, damage, references
from core.retention.retention import DAY_S
from core.scheduling import claim as claims
from core.settings import Settings
from core.storage import Blobs, ObjectStorage
from core.upkeep import sweep
from core.upkeep.sweep_dry_run import list_sweep_removals
from core.uploads import chunks

LATE_S = DAY_S
"""Seconds after which something that a sweep should have removed is reported.

Before, it is only waiting.
"""
LEASE_S = 60.0
"""Seconds after which an expired lease is reported; every worker looks for these every few seconds.
"""
_PREFIXES = ("anytime/", archives.PREFIX, "blobs/", "snapshots/", "sweeps/", chunks.PREFIX)
_ROWS = 1000
_MARKED = 10_000

Kind = Literal["missing", "size", "digest", "overdue", "foreign", "lease"]


@dataclass(frozen=True)
class StoreInconsistency:
    """A difference between the database and the object store, or a leftover.

    Attributes:
        kind: `missing`, `size` or `digest`: a row refers to an object that is missing or differs;
            `overdue`: an object or rows that a sweep should have removed; `foreign`: an object that
            is not of the service; `lease`: the lease of a job whose worker is gone.
        object: key in the store, rows of a table, or a job.
        detail: what refers to it, or why it should be gone.
        bytes: bytes of the object according to the row, or as stored.
    """

    kind: Kind
    object: str
    detail: str
    bytes: int


@dataclass(frozen=True)
class ReferencedObject:
    """A stored object as a database row refers to it: key, size, digest, and a description of the
    row.
    """

    key: str
    size: int | None
    sha256: str | None
    by: str


def iterate_referenced_objects(db: Database) -> Iterator[ReferencedObject]:
    """Yield every stored object that a database row refers to; one with several rows comes several
    times.
    """
    with db.read() as session:
        yield from _iterate_referenced_blobs(session)
        # Rows are read in portions of `_ROWS`: a large service has millions of them.
        archives = select(Task.archive_key, Task.bytes, Task.sha256, Task.model_id, Task.number)
        query = archives.where(Task.archive_key.is_not(None)).execution_options(yield_per=_ROWS)
        for key, size, sha256, model, number in session.execute(query):
            yield ReferencedObject(str(key), size, sha256, f"archive of task {number} of {model}")
        columns = (Job.archive_key, Job.archive_bytes, Job.archive_sha256, Job.id)
        uploads = (
            select(*columns).where(Job.archive_key.is_not(None)).execution_options(yield_per=_ROWS)
        )
        for row in session.execute(uploads):
            yield ReferencedObject(
                str(row.archive_key), row.archive_bytes, row.archive_sha256, f"archive of {row.id}"
            )
        pieces = select(
            StoredUploadPiece.key,
            StoredUploadPiece.bytes,
            StoredUploadPiece.sha256,
            StoredUploadPiece.upload_id,
            StoredUploadPiece.offset,
        )
        for key, size, sha256, upload, at in session.execute(
            pieces.execution_options(yield_per=_ROWS)
        ):
            yield ReferencedObject(key, size, sha256, f"piece of {upload} from byte {at} on")
        for kind in ("snapshot", "anytime"):
            state = getattr(Job, kind)
            states = (
                select(Job.id, state).where(state.is_not(None)).execution_options(yield_per=_ROWS)
            )
            for job, value in session.execute(states):
                for name, (sha256, size) in value.files.items():
                    yield ReferencedObject(value.key + name, size, sha256, f"{kind} of {job}")


def _iterate_referenced_blobs(session: Session) -> Iterator[ReferencedObject]:
    """Yield the blobs that database rows refer to."""
    versions = (Version.number, Version.model_id)
    parts = (
        select(VersionPart.sha256, VersionPart.bytes, VersionPart.name, *versions)
        .join(Version)
        .where(VersionPart.deleted_at.is_(None))
    )
    for sha256, size, name, number, model in session.execute(
        parts.execution_options(yield_per=_ROWS)
    ):
        yield ReferencedObject(
            Blobs.make_blob_key(sha256),
            size,
            sha256,
            f"part {name} of version {number} of {model}",
        )
    exports = select(ExportedDownload.sha256, ExportedDownload.bytes, *versions).join(Version)
    for sha256, size, number, model in session.execute(exports.execution_options(yield_per=_ROWS)):
        yield ReferencedObject(
            Blobs.make_blob_key(sha256),
            size,
            sha256,
            f"download of version {number} of {model}",
        )
    bases = select(UploadedBase.sha256, UploadedBase.bytes, UploadedBase.id).execution_options(
        yield_per=_ROWS
    )
    for sha256, size, base in session.execute(bases):
        yield ReferencedObject(Blobs.make_blob_key(sha256), size, sha256, base)
    totals = select(Model.totals_sha256, Model.totals_bytes, Model.id).where(
        Model.totals_sha256.is_not(None)
    )
    for totals_sha256, totals_bytes, model in session.execute(
        totals.execution_options(yield_per=_ROWS)
    ):
        yield ReferencedObject(
            Blobs.make_blob_key(str(totals_sha256)),
            totals_bytes,
            totals_sha256,
            f"totals of {model}",
        )
    predictions = select(
        VersionTaskResult.answers,
        VersionTaskResult.answers_bytes,
        VersionTaskResult.version,
        VersionTaskResult.task,
        VersionTaskResult.model_id,
    )
    stored = predictions.where(VersionTaskResult.answers.is_not(None)).execution_options(
        yield_per=_ROWS
    )
    for row in session.execute(stored):
        referrer = f"answers of version {row.version} on task {row.task} of {row.model_id}"
        yield ReferencedObject(
            Blobs.make_blob_key(str(row.answers)), row.answers_bytes, row.answers, referrer
        )
    for column, deleted, content in (
        (Task.train_sha256, Task.train_deleted_at, "training part"),
        (Task.held_out_sha256, Task.held_out_deleted_at, "held-out part"),
        (Task.traces_sha256, Task.held_out_deleted_at, "hashes"),
        (Task.features_sha256, Task.held_out_deleted_at, "features of the held-out part"),
        (Task.selection_sha256, Task.held_out_deleted_at, "selection images"),
    ):
        tasks = select(column, Task.number, Task.model_id).where(
            column.is_not(None), deleted.is_(None)
        )
        for digest, number, model in session.execute(tasks.execution_options(yield_per=_ROWS)):
            yield ReferencedObject(
                Blobs.make_blob_key(str(digest)),
                None,
                digest,
                f"{content} of task {number} of {model}",
            )


def find_store_inconsistencies(
    db: Database, store: ObjectStorage, settings: Settings, *, verify: bool = False
) -> list[StoreInconsistency]:
    """Find all differences between database and object store; nothing is changed.

    Args:
        verify: read every object and compare its digest. Otherwise, objects are verified that the
            scrub or a request has marked as damaged.
    """
    return [
        *_find_rows_with_wrong_objects(db, store, verify),
        *_find_files_overdue_for_sweep(db, store, settings),
        *_find_foreign_objects(store),
        *_find_jobs_with_expired_lease(db),
    ]


def repair_store_and_run_sweep(
    db: Database,
    store: ObjectStorage,
    blobs: Blobs,
    settings: Settings,
    drifts: list[StoreInconsistency],
) -> None:
    """Repair differences between database and store that are safe to repair; `find_store_inconsistencies`
    reports the rest.

    A missing or damaged blob is restored from this machine's cache if its copy is sound. A download
    that nothing else refers to is forgotten, and the next request builds it again. A damaged
    snapshot or best state is forgotten, and its job starts again. A sweep removes overdue objects,
    and jobs are taken from workers that are gone. Repeating it changes nothing more. The remaining
    objects are marked so that they are not used; other marks are removed.
    """
    for drift in drifts:
        # The other kinds are left to the sweep and the reaper below.
        if drift.kind not in ("missing", "size", "digest"):
            continue
        area, _, name = drift.object.partition("/")
        if area == "blobs":
            _restore_blob_or_delete_its_downloads(db, store, blobs, name.rpartition("/")[2])
            _update_damage_mark(db, store, drift.object)
        elif area in ("snapshots", "anytime"):
            _clear_damaged_snapshot_of_unleased_job(
                db, drift.object, "snapshot" if area == "snapshots" else "anytime"
            )
    with db.read() as session:
        marks = [row.key for row in damage.list_damage_marks(session, _MARKED)]
    for key in marks:
        _update_damage_mark(db, store, key)
    if any(drift.kind == "lease" for drift in drifts):
        claims.take_back_jobs_with_expired_lease(db)
    # Last, so that it also removes what the repairs left without a row.
    sweep.run_sweep(db, store, blobs, settings, sweep.SweepOptions(whole=True))


def _find_rows_with_wrong_objects(
    db: Database, store: ObjectStorage, verify: bool
) -> Iterator[StoreInconsistency]:
    """Yield the database rows whose stored object is missing or differs."""
    # A row that is written after this listing looks wrong, and is looked up again below.
    stored = {info.key: info.size for info in store.list("")}
    with db.read() as session:
        marked = {row.key for row in damage.list_damage_marks(session, _MARKED)}
    reported: set[str] = set()
    # Thousands of rows may refer to one blob, which is read once.
    sound: set[str] = set()
    # No transaction stays open while objects are read.
    for reference in list(iterate_referenced_objects(db)):
        if reference.key in reported:
            continue
        kind: Kind | None = None
        if reference.key not in stored:
            kind = "missing"
        elif reference.size is not None and stored[reference.key] != reference.size:
            kind = "size"
        elif (verify or reference.key in marked) and reference.key not in sound:
            kind = None if _is_object_sound(store, reference) else "digest"
            sound.add(reference.key)
        if kind is not None and _is_object_still_wrong(db, store, reference, kind):
            reported.add(reference.key)
            yield StoreInconsistency(
                kind, reference.key, reference.by, reference.size or stored.get(reference.key, 0)
            )


def _is_object_still_wrong(
    db: Database, store: ObjectStorage, named: ReferencedObject, kind: Kind
) -> bool:
    """Return True if the row still refers to the object and the object still differs from it."""
    with db.read() as session:
        if not _is_object_referenced(session, named):
            return False
    # The object may have been replaced or removed since the listing, as by a sweep.
    info = store.stat(named.key)
    if kind == "missing":
        return info is None
    if kind == "size":
        return info is None or info.size != named.size
    return not _is_object_sound(store, named)


def _is_object_referenced(session: Session, named: ReferencedObject) -> bool:
    """Return True if a database row refers to the stored object."""
    area, _, name = named.key.partition("/")
    if area == "blobs":
        return bool(references.find_digests_still_in_use(session, [name.rpartition("/")[2]]))
    if area == "archives":
        return archives.find_archive_digest(session, named.key) is not None
    if named.key.startswith(chunks.PREFIX):
        return bool(chunks.find_referenced_upload_piece_keys(session, [named.key]))
    job = session.get(Job, name.partition("/")[0])
    if job is None:
        return False
    states = [state for state in (job.snapshot, job.anytime) if state is not None]
    return any(named.key in state.store_keys for state in states)


def _is_object_sound(store: ObjectStorage, named: ReferencedObject) -> bool:
    """Return True if a stored object has its digest, or if no digest is known."""
    digest = hashlib.sha256()
    try:
        for chunk in store.read(named.key):
            digest.update(chunk)
    except StoredObjectDamaged:
        return False
    return named.sha256 in (None, digest.hexdigest())


def _find_files_overdue_for_sweep(
    db: Database, store: ObjectStorage, settings: Settings
) -> Iterator[StoreInconsistency]:
    """Yield stored files that the periodic sweep should have removed already."""
    with db.read() as session:
        limit = db.now(session) - LATE_S
    for removal in list_sweep_removals(db, store, settings, late_s=LATE_S):
        # Rows have no object to look for; an object may have been removed by a sweep meanwhile.
        if removal.modified < limit and (
            removal.modified == 0.0 or store.stat(removal.object) is not None
        ):
            yield StoreInconsistency("overdue", removal.object, removal.reason, removal.bytes)


def _find_foreign_objects(store: ObjectStorage) -> Iterator[StoreInconsistency]:
    """Yield objects in the store that the service did not write."""
    for info in store.list(""):
        if not info.key.startswith(_PREFIXES):
            yield StoreInconsistency(
                "foreign", info.key, "no object of the service has such a key", info.size
            )


def _find_jobs_with_expired_lease(db: Database) -> Iterator[StoreInconsistency]:
    """Yield the jobs whose worker's lease has expired."""
    with db.read() as session:
        late = Job.lease_until < db.now(session) - LEASE_S
        query = select(Job.id, Job.state, Job.worker).where(Job.state.in_(sorted(LEASED)), late)
        for job, state, worker in session.execute(query):
            yield StoreInconsistency(
                "lease", job, f"{state}, but its worker {worker} stopped reporting", 0
            )


def _restore_blob_or_delete_its_downloads(
    db: Database, store: ObjectStorage, blobs: Blobs, sha256: str
) -> None:
    """Restore a damaged blob from the local cache, or delete the downloads made of it."""
    key = Blobs.make_blob_key(sha256)
    # Hashed before the lock is taken, for which every publish would wait.
    copy = blobs.find_sound_cached_file(sha256)
    with db.write() as session:
        # Neither a publish nor a sweep may change what the blob is used for meanwhile.
        references.lock_blob_references_exclusively(session)
        if copy is not None and references.find_digests_still_in_use(session, [sha256]):
            store.put_file(key, copy)
            return
        info = store.stat(key)
        if info is not None and _is_object_sound(store, ReferencedObject(key, None, sha256, "")):
            return  # it is there again, and a wrong size in a row cannot be repaired here
        session.execute(delete(ExportedDownload).where(ExportedDownload.sha256 == sha256))
        if not references.find_digests_still_in_use(session, [sha256]):
            blobs.delete(sha256)


def _update_damage_mark(db: Database, store: ObjectStorage, key: str) -> None:
    """Mark a blob or archive as damaged if it still differs from its digest; else remove its mark."""
    info = store.stat(key)
    with db.read() as session:
        digest = key.rpartition("/")[2]
        if key.startswith(archives.PREFIX):
            digest = archives.find_archive_digest(session, key) or ""
    # Hashed before the transaction, in which other writers would wait for the store.
    sound = info is not None and _is_object_sound(store, ReferencedObject(key, None, digest, ""))
    with db.write() as session:
        if sound or not _is_object_referenced(session, ReferencedObject(key, None, digest, "")):
            damage.remove_damage_marks_of_keys(session, [key])
        else:
            kind: damage.Kind = "missing" if info is None else "digest"
            damage.mark_object_damaged_and_delete_downloads(
                session, key, kind, "" if info is None else info.tag, db.now(session)
            )


def _clear_damaged_snapshot_of_unleased_job(
    db: Database, key: str, kind: Literal["snapshot", "anytime"]
) -> None:
    """Remove a damaged snapshot from a job that no worker has; a running job replaces it by itself."""
    with db.write() as session:
        job = job_rows.lock_job(session, key.split("/")[1])
        state = getattr(job, kind, None)
        if (
            job is not None
            and state is not None
            and job.state not in LEASED
            and key.startswith(state.key)
        ):
            setattr(job, kind, None)
