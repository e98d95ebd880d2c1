"""The sweep: removal of everything that is no longer needed.

Safe in every worker at once, and after any crash. Each step looks for leftovers and removes them,
again if need be, so nothing depends on the process that should have removed them. Decisions about a
job's files are made while its row is locked, so that a retry cannot slip in between.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from sqlalchemy import Select, and_, bindparam, delete, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from core.bases.hub import unfinished
from core.contract.jobs.snapshot import StoredJobTrainingState
from core.database import jobs as job_rows
from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import TERMINAL, UNFINISHED, JobState
from core.database.tables import (
    Alias,
    Edit,
    ExportedDownload,
    IdempotencyRecord,
    Job,
    Model,
    OwnerEvent,
    StoredJobEvent,
    Task,
    TaskFileBeforeEdit,
    Version,
    VersionPart,
)
from core.execution.snapshots import parse_snapshot_key
from core.files import spool
from core.retention import archives, references, retention
from core.retention.unreferenced_blobs import delete_unreferenced_cached_blobs
from core.scheduling.eligible import build_claimable_job_condition
from core.settings import Settings
from core.storage import Blobs, ObjectStorage
from core.upkeep.task_files import delete_expired_task_files
from core.uploads import chunks, upload_removal
from core.webhooks import outbox

UNRUNG_S = 5.0
"""Seconds that a job waits without a notification before workers are notified again."""
BLOB_DAYS = 1.0
"""Days after which a blob or archive without a row is removed.

A younger one may be about to get its row.
"""
_MARK = "sweeps/blobs"
_MEMORIES = ("buffer", "exemplars")
"""Types of parts that hold images of the training data."""
_BATCH = 200


class SweepOptions(NamedTuple):
    """Extent of a sweep (the periodic removal of expired data): minimum ages and thoroughness.

    Attributes:
        grace_days: age in days at which an object without a row (blob, archive, piece of an upload)
            is removed. Blobs are safe at any age, since their presence is checked again when a row
            is added. Archives and pieces need at least the time that accepting them takes.
        whole: look at all blobs, even if that was done less than a day ago.
    """

    grace_days: float = BLOB_DAYS
    whole: bool = False


USUAL = SweepOptions()
# Its parameters are the times `now` and `before`: since when workers were not notified.
_LONG_WAITING_CLAIMABLE_JOBS = (
    select(Job.id)
    .where(
        build_claimable_job_condition(),
        # A fresh job was announced a moment ago, and the message is usually still on its way.
        Job.created_at < bindparam("before"),
        or_(Job.rung_at.is_(None), Job.rung_at < bindparam("before")),
    )
    .order_by(Job.created_at)
    # A long queue needs no more rings: each worker claims until nothing is left.
    .limit(100)
)


def find_long_waiting_claimable_jobs(db: Database, older_s: float = UNRUNG_S) -> list[str]:
    """Return ids of claimable jobs that have waited over `older_s` seconds since workers were last
    notified.
    """
    with db.read() as session:
        now = db.now(session)
        times = {"now": now, "before": now - older_s}
        return list(session.execute(_LONG_WAITING_CLAIMABLE_JOBS, times).scalars())


def build_sweep_steps(
    db: Database,
    store: ObjectStorage,
    blobs: Blobs,
    settings: Settings,
    extent: SweepOptions = USUAL,
) -> dict[str, Callable[[], None]]:
    """Return the steps of a sweep in order, each by a description of what it removes."""
    # Steps that delete rows come first, so that the last ones find what these have released.
    return {
        "expired event or idempotency record": lambda: _delete_expired_events_and_idempotency(
            db, settings
        ),
        "delivery of a webhook that is over": lambda: outbox.remove_old_webhook_deliveries(
            db, settings.delivery_days
        ),
        "snapshot of a job that is over, or superseded": lambda: _delete_unneeded_job_snapshots(
            db, store, settings, "snapshot", "snapshots/"
        ),
        "best state of a job that is over, or superseded": lambda: _delete_unneeded_job_snapshots(
            db, store, settings, "anytime", "anytime/"
        ),
        "file of a task whose time is over": lambda: delete_expired_task_files(
            db, store, blobs, settings
        ),
        "file before an edit that can no longer be undone": lambda: _delete_expired_edit_undo_files(
            db, blobs
        ),
        "memory with images of a task whose data was deleted": lambda: (
            _delete_replay_of_tasks_with_deleted_data(db, blobs)
        ),
        "expired download": lambda: _delete_expired_downloads(db, blobs, settings),
        "file of a deleted model": lambda: _delete_deleted_models_data(db, blobs),
        "upload of a job that is over": lambda: upload_removal.delete_archives_of_finished_jobs(
            db, store
        ),
        "upload whose time is over": lambda: upload_removal.remove_expired_uploads(db, store),
        "piece of an upload that nothing names": lambda: retention.delete_unreferenced_objects(
            db, store, chunks.PREFIX, chunks.find_referenced_upload_piece_keys, extent.grace_days
        ),
        "archive that nothing names": lambda: retention.delete_unreferenced_objects(
            db, store, archives.PREFIX, archives.find_archives_still_in_use, extent.grace_days
        ),
        "blob that nothing names": lambda: _delete_unreferenced_blobs(
            db, store, blobs, extent.grace_days, extent.whole
        ),
    }


def run_sweep(
    db: Database,
    store: ObjectStorage,
    blobs: Blobs,
    settings: Settings,
    extent: SweepOptions = USUAL,
) -> None:
    """Remove expired and unneeded data: all steps once, and this machine's leftover files.

    Errors of database and store in an outage pass through, and the next round continues.
    """
    for step in build_sweep_steps(db, store, blobs, settings, extent).values():
        step()
    # The rest is this machine's own, which no other worker can clean up.
    spool.remove_abandoned_spool_files(settings.make_folder("spool"))
    downloads = settings.make_folder(unfinished.FOLDER)
    unfinished.remove_old_unfinished_hub_downloads(
        downloads, settings.failed_days * retention.DAY_S, settings.max_fetch_bytes
    )
    delete_unreferenced_cached_blobs(db, blobs)
    store.remove_incomplete_objects()


def _delete_expired_events_and_idempotency(db: Database, settings: Settings) -> None:
    """Delete expired events of finished jobs, and expired idempotency records."""
    with db.write() as session:
        now = db.now(session)
        unfinished = exists().where(
            Job.id == StoredJobEvent.job_id, job_rows.build_unfinished_job_condition(Job.state)
        )
        old = StoredJobEvent.at < now - settings.event_days * retention.DAY_S
        session.execute(delete(StoredJobEvent).where(old, ~unfinished))
        session.execute(
            delete(OwnerEvent).where(OwnerEvent.at < now - settings.event_days * retention.DAY_S)
        )
        session.execute(
            delete(IdempotencyRecord).where(
                IdempotencyRecord.created_at < now - IdempotencyRecord.KEPT_S
            )
        )


def _delete_expired_edit_undo_files(db: Database, blobs: Blobs) -> None:
    """Delete files that were retained to undo edits, once an edit can no longer be undone."""
    with db.write() as session:
        expired = TaskFileBeforeEdit.until < db.now(session)
        digests = retention.delete_edit_undo_file_rows(session, expired)
    retention.delete_unused_blobs(db, blobs, sorted(digests))


def _delete_unneeded_job_snapshots(
    db: Database,
    store: ObjectStorage,
    settings: Settings,
    kind: Literal["snapshot", "anytime"],
    prefix: str,
) -> None:
    """Delete the snapshots of finished jobs (failed: once no retry is possible), and superseded
    ones.

    Args:
        kind: column of `Job` that names a job's registered state.
        prefix: prefix of all these states in the store.
    """
    keys: dict[str, list[str]] = {}
    for info in store.list(prefix):
        keys.setdefault(info.key.split("/")[1], []).append(info.key)
    with db.read() as session:
        # "not in": otherwise SQLite walks through all finished jobs instead of the few that have a
        # state
        unfinished = sorted(str(state) for state in UNFINISHED)
        named = select(Job.id).where(getattr(Job, kind).is_not(None), Job.state.not_in(unfinished))
        for job_id in session.execute(named).scalars():
            keys.setdefault(job_id, [])
    for job_id, stored_keys in keys.items():
        with db.write() as session:
            job = job_rows.lock_job(session, job_id)
            if job is None:
                removable = stored_keys
            elif JobState(job.state) not in TERMINAL or _may_snapshots_serve_retry(
                db, session, job, settings.failed_days
            ):
                removable = _find_superseded_snapshot_keys(job, getattr(job, kind), stored_keys)
            else:
                removable = stored_keys
                setattr(job, kind, None)
            # While the row is locked, or a retry could begin from a state that is being deleted.
            for key in removable:
                store.delete(key)


def _find_superseded_snapshot_keys(
    job: Job, registered: StoredJobTrainingState | None, keys: list[str]
) -> list[str]:
    """Return the store keys of a job's snapshots that are older than the registered one.

    Without one, return the keys that no present attempt has stored.
    """
    if registered is not None:
        current = (registered.fence, registered.number)
    elif job.fence is not None:
        # The present attempt may have stored a state that it has not registered yet.
        current = (job.fence, 0)
    else:
        return keys
    return [key for key in keys if parse_snapshot_key(key) < current]


def _may_snapshots_serve_retry(db: Database, session: Session, job: Job, days: float) -> bool:
    """Return True if a finished job's snapshots may serve a retry: it failed lately and its data
    exist.
    """
    if JobState(job.state) != JobState.FAILED:
        return False
    # A failed edit is sent again instead.
    if job.task_id is None or job.kind == JobKind.EDIT:
        return False
    model, task = session.get_one(Model, job.model_id), session.get_one(Task, job.task_id)
    if model.deleted_at is not None or task.data_deleted_at is not None or job.finished_at is None:
        return False
    erased = (
        select(Task.id)
        .where(Task.model_id == model.id, Task.data_deleted_at > job.created_at)
        .limit(1)
    )
    if session.execute(erased).first() is not None:
        return False  # replayed images of that task may be in it
    removed = (
        select(Edit.id)
        .where(
            Edit.model_id == model.id,
            Edit.version > (job.parent_version or 0),
            Edit.undo_until.is_(None),
        )
        .limit(1)
    )
    if session.execute(removed).first() is not None:
        return False  # images that the edit removed may be in it
    return job.finished_at >= db.now(session) - days * retention.DAY_S


_DELETED_TASKS = (
    select(Task.model_id, Task.number, Task.data_deleted_at)
    .join(Model, Model.id == Task.model_id)
    .where(
        Task.data_deleted_at.is_not(None),
        Model.deleted_at.is_(None),
        select(VersionPart.version_id)
        .join(Version, Version.id == VersionPart.version_id)
        .where(
            Version.model_id == Task.model_id,
            Version.created_at <= Task.data_deleted_at,
            VersionPart.type.in_(_MEMORIES),
            VersionPart.deleted_at.is_(None),
        )
        .exists(),
    )
)
"""Tasks whose data was deleted, in models with older memories."""


def _delete_replay_of_tasks_with_deleted_data(db: Database, blobs: Blobs) -> None:
    """Delete replay buffers of older versions that may hold images of tasks whose data was deleted.

    The next version is made without its images. Older versions lose theirs when no job can start
    from them by itself: `production` and the lineage head point to others, and no job from them is
    under way. Other state of a version stays. A memory that a later version shares has none of the
    images, and packs of images that later versions share stay.
    """
    with db.read() as session:
        deleted_tasks = session.execute(_DELETED_TASKS).all()
    for model_id, task, deleted_at in deleted_tasks:
        assert deleted_at is not None, "the query asks for no others"
        digests: list[str] = []
        with db.write() as session:
            newer = select(Version.id).where(
                Version.model_id == model_id, Version.created_at > deleted_at
            )
            if session.execute(newer.where(Version.status == "published").limit(1)).first() is None:
                continue
            # A claim locks the model's row while it fixes the parent, so no job starts from such a
            # version now.
            session.get_one(Model, model_id, with_for_update=True)
            for part in session.execute(
                _build_deletable_replay_parts_query(model_id, task, deleted_at)
            ).scalars():
                part.deleted_at = db.now(session)
                digests.append(part.sha256)
        retention.delete_unused_blobs(db, blobs, digests)


def _build_deletable_replay_parts_query(
    model_id: str, task: int, deleted_at: float
) -> Select[VersionPart]:
    """Return the query for replay parts that may hold a task's images, in versions that no job
    starts from by itself.
    """
    of_model = Version.model_id == model_id
    # Versions before the first that learned the task hold none of its images.
    learned = select(func.min(Version.number)).where(of_model, Version.task_number == task)
    since = select(Version.id).where(of_model, Version.created_at > deleted_at)
    production = select(Alias.version).where(Alias.model_id == model_id, Alias.name == "production")
    head = select(Model.head).where(Model.id == model_id)
    under_way = select(Job.parent_version).where(
        Job.model_id == model_id,
        # A NULL in the list of NOT IN would make the condition true for no version.
        Job.parent_version.is_not(None),
        Job.state.not_in(sorted(str(s) for s in TERMINAL)),
    )
    memory = aliased(VersionPart)  # the part that lists the images
    return (
        select(VersionPart)
        .join(Version, Version.id == VersionPart.version_id)
        .join(
            memory,
            and_(memory.version_id == VersionPart.version_id, memory.name == VersionPart.type),
        )
        .where(
            of_model,
            VersionPart.type.in_(_MEMORIES),
            VersionPart.deleted_at.is_(None),
            Version.number >= learned.scalar_subquery(),
            Version.created_at <= deleted_at,
            Version.number.not_in(production),
            Version.number.not_in(head),
            Version.number.not_in(under_way),
            memory.sha256.not_in(
                select(VersionPart.sha256).where(VersionPart.version_id.in_(since))
            ),
        )
    )


def _delete_expired_downloads(db: Database, blobs: Blobs, settings: Settings) -> None:
    """Delete exported downloads that have expired."""
    with db.write() as session:
        references.lock_blob_references_exclusively(session)
        old = db.now(session) - settings.export_days * retention.DAY_S
        exports = list(
            session.execute(
                select(ExportedDownload).where(ExportedDownload.created_at < old)
            ).scalars()
        )
        digests = [export.sha256 for export in exports]
        for export in exports:
            session.delete(export)
    retention.delete_unused_blobs(db, blobs, digests)


def _delete_deleted_models_data(db: Database, blobs: Blobs) -> None:
    """Delete parts and exports of deleted models whose jobs have all ended.

    Rows about the models stay.
    """
    with db.read() as session:
        unfinished = exists().where(
            Job.model_id == Model.id, job_rows.build_unfinished_job_condition(Job.state)
        )
        over = select(Model.id).where(Model.deleted_at.is_not(None), ~unfinished)
        query = select(Version.id).where(
            Version.model_id.in_(over),
            or_(
                exists().where(VersionPart.version_id == Version.id),
                exists().where(ExportedDownload.version_id == Version.id),
            ),
        )
        ids = list(session.execute(query).scalars())
    # A transaction for each version, since other writers must get in between.
    for version_id in ids:
        with db.write() as session:
            digests: list[str] = []
            for table in (VersionPart, ExportedDownload):
                mine = table.version_id == version_id
                digests += session.execute(select(table.sha256).where(mine)).scalars()
                session.execute(delete(table).where(mine))
        retention.delete_unused_blobs(db, blobs, digests)


def _delete_unreferenced_blobs(
    db: Database, store: ObjectStorage, blobs: Blobs, grace_days: float, is_forced: bool
) -> None:
    """Delete blobs that no row refers to, once a day for all workers."""
    with db.read() as session:
        now = db.now(session)
    limit = now - grace_days * retention.DAY_S
    last = store.stat(_MARK)
    if not is_forced and last is not None and last.modified > now - BLOB_DAYS * retention.DAY_S:
        return
    # Written before the work, so that other workers do not begin the same pass beside this one.
    store.put_bytes(_MARK, b"")
    batch: list[str] = []
    for info in store.list("blobs/"):
        if info.modified < limit:
            batch.append(info.key.rpartition("/")[2])
        if len(batch) == _BATCH:
            retention.delete_unused_blobs(db, blobs, batch)
            batch = []
    retention.delete_unused_blobs(db, blobs, batch)
