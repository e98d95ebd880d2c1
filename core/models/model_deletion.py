"""Deletion of a model: cancel its jobs, hide it, and remove its images and parts."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.database.jobs import change_job_state
from core.database.session import Database
from core.database.states import TERMINAL, UNFINISHED, JobAction
from core.database.tables import (
    Edit,
    ExportedDownload,
    Job,
    Model,
    Task,
    TaskFileBeforeEdit,
    Version,
    VersionPart,
)
from core.errors import NotFound
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.retention import retained_predictions, retention
from core.retention.feature_totals import clear_feature_totals_in_model_row
from core.retention.unreferenced_blobs import release_rows_and_delete_files
from core.storage import Blobs, ObjectStorage
from core.tasks import repeated_batches
from core.trials.rows import delete_trial_file_rows
from core.usage import stored_bytes


def delete_model(
    db: Database, store: ObjectStorage, blobs: Blobs, actor: Actor, model: str
) -> None:
    """Delete a model for its caller: cancel its jobs, hide it, and remove its images and parts.

    A running job ends within its grace period; the sweep removes what it still writes.

    Raises:
        NotFound: the caller sees no such model.
    """
    release_rows_and_delete_files(
        db,
        store,
        blobs,
        lambda session: _mark_model_deleted_and_cancel_jobs(db, session, actor, model),
    )


def find_deleted_model_name(db: Database, actor: Actor, model: str) -> str | None:
    """Return the former name of a deleted model of the caller, or None."""
    with db.read() as session:
        named = select(Model.name).where(Model.id == model, Model.deleted_at.is_not(None))
        return session.scalar(named.where(actor.build_visible_condition(Model.owner_id)))


def _mark_model_deleted_and_cancel_jobs(
    db: Database, session: Session, actor: Actor, model: str
) -> tuple[list[str], list[str]] | None:
    """Mark a model as deleted, and return the store keys and digests that it no longer needs.

    Locks are taken in the order of a publish (job, model, task); another order could deadlock.

    Returns:
        Keys and digests, or None if a job was submitted meanwhile and the caller must try again.
    """
    unlocked_model = find_model(session, actor, model)
    unfinished = (Job.model_id == unlocked_model.id, Job.state.in_(sorted(UNFINISHED)))
    locked_jobs = list(
        session.scalars(
            select(Job).where(*unfinished).order_by(Job.id).with_for_update(key_share=True)
        )
    )
    # Read again, since another request may have deleted the model before the lock was there.
    row = session.get_one(Model, unlocked_model.id, with_for_update=True, populate_existing=True)
    if row.deleted_at is not None:
        raise NotFound(f"There is no model {model!r}.")
    if set(session.scalars(select(Job.id).where(*unfinished))) - {job.id for job in locked_jobs}:
        return None  # submitted since: lock it too
    now = db.now(session)
    row.deleted_at = now
    stopped: set[str | None] = set()
    archives, digests = (
        [],
        clear_feature_totals_in_model_row(row).union(
            retained_predictions.clear_prediction_digests_and_keys(session, row.id)
        ),
    )
    for job in locked_jobs:
        digests |= delete_trial_file_rows(session, job.id)
        if (
            change_job_state(session, job, JobAction.CANCEL, now, {"reason": "model deleted"})
            in TERMINAL
        ):
            # Not of a running job, which needs its archive until it has stopped.
            stopped.add(job.task_id)
            if job.archive_key is not None:
                archives.append(job.archive_key)
                job.archive_key = None
    for task in session.scalars(select(Task).where(Task.model_id == row.id)):
        digests |= {d for d in task.blob_digests if d}
        repeated_batches.remove_task_content_digest(task)
        # A time that is set already is the one at which the images really went.
        task.train_deleted_at = task.train_deleted_at or now
        task.held_out_deleted_at = task.held_out_deleted_at or now
        if task.archive_key is not None and task.id in stopped:
            archives.append(task.archive_key)
            task.archive_key = None
    edits = select(Edit.id).where(Edit.model_id == row.id)
    digests |= retention.delete_edit_undo_file_rows(session, TaskFileBeforeEdit.edit_id.in_(edits))
    versions = select(Version.id).where(Version.model_id == row.id)
    parts = session.scalars(select(VersionPart).where(VersionPart.version_id.in_(versions)))
    exports = session.scalars(
        select(ExportedDownload).where(ExportedDownload.version_id.in_(versions))
    )
    for file_row in (*parts, *exports):
        digests.add(file_row.sha256)
        session.delete(file_row)
    record_audit_entry(
        session, actor, AuditedChange("model.delete", row.id, {"name": row.name}, model=row.id), now
    )
    stored_bytes.mark_owner_bytes_outdated(session, row.owner_id)
    return archives, sorted(digests)
