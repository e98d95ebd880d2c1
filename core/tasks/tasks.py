"""Tasks: list and show them, and delete a task's images.

`core.tasks.submission` accepts new ones.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.manifest import FEATURES, REST
from core.contract.responses.audit import AuditData
from core.contract.responses.task import TaskOut, TaskPage
from core.database import deliveries
from core.database.jobs import change_job_state
from core.database.session import Database
from core.database.states import LEASED, UNFINISHED, JobAction, JobState
from core.database.tables import Job, Model, Task, TaskFileBeforeEdit, Version, VersionPart
from core.errors import NotFound, WrongState
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, read_query_page
from core.retention import retained_predictions, retention
from core.retention.feature_totals import clear_feature_totals_in_model_row
from core.retention.unreferenced_blobs import delete_unreferenced_blobs
from core.storage import Blobs, ObjectStorage
from core.tasks import repeated_batches
from core.tasks.task_response import build_task_response, build_task_responses
from core.trials.rows import lock_unfinished_trial_jobs, reset_trials_of_unfinished_jobs
from core.usage import stored_bytes


def list_tasks(db: Database, actor: Actor, model: str, limit: int, cursor: str | None) -> TaskPage:
    """Return a page of the tasks of a model that the caller sees, in order.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        query = select(Task).where(Task.model_id == row.id)
        tasks: ListPage[Task] = read_query_page(session, query, Task.number, limit, cursor)
        return {
            "items": build_task_responses(session, row, tasks.rows),
            "next_cursor": tasks.next_cursor,
        }


def read_task(db: Database, actor: Actor, model: str, number: int) -> TaskOut:
    """Return one task of a model that the caller sees.

    Raises:
        NotFound: the caller sees no such model or task.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        return build_task_response(session, row, _require_task_by_number(session, row, number))


def delete_task_data(
    db: Database, store: ObjectStorage, blobs: Blobs, actor: Actor, model: str, number: int
) -> None:
    """Delete a task's images for its caller: archive, training part and held-out part.

    Repeating the call changes nothing. Replayed images are dropped by the next version, and later
    cells of the accuracy matrix are null. A running job of the model has the images in its memory:
    it is released, and continues without them.

    Raises:
        NotFound: the caller sees no such model or task.
        WrongState: its job is not finished.
    """
    done = None
    while done is None:
        with db.write() as session:
            done = _mark_task_data_deleted_and_release_job(db, session, actor, model, number)
    # Files go after the commit: if it failed, rows would refer to deleted ones.
    for key in done[0]:
        store.delete(key)
    delete_unreferenced_blobs(db, blobs, done[1])


def _mark_task_data_deleted_and_release_job(
    db: Database, session: Session, actor: Actor, model: str, number: int
) -> tuple[list[str], list[str]] | None:
    """Mark a task's images as deleted; return the store keys and digests to delete.

    Locks are taken in the order of a publish (job, model, task); another order could deadlock.

    Returns:
        Keys and digests, or None if a job was claimed meanwhile and the caller must try again.
    """
    unlocked_model = find_model(session, actor, model)
    leased = (
        Job.model_id == unlocked_model.id,
        Job.place.is_not(None),
        Job.state.in_(sorted(LEASED)),
    )
    locked_job = session.scalars(
        select(Job).where(*leased).with_for_update(key_share=True)
    ).one_or_none()
    lock_unfinished_trial_jobs(session, unlocked_model.id)
    row = find_model(session, actor, unlocked_model.id, lock=True)
    if session.scalar(select(Job.id).where(*leased)) != (
        locked_job.id if locked_job is not None else None
    ):
        return None  # claimed since: lock it too
    task = _require_task_by_number(session, row, number)
    if task.data_deleted_at is not None:
        return [], []
    open_job = session.scalar(
        select(Job).where(Job.task_id == task.id, Job.state.in_(sorted(UNFINISHED))).limit(1)
    )
    if open_job is not None:
        raise WrongState(
            f"The task's job {open_job.id} is {open_job.state}: cancel it first.",
            extra={"state": open_job.state},
        )
    now = db.now(session)
    if locked_job is not None and locked_job.state == JobState.RUNNING:
        change_job_state(
            session,
            locked_job,
            JobAction.RELEASE,
            now,
            {"reason": f"the data of task {number} was deleted"},
        )
    archives = [task.archive_key] if task.archive_key is not None else []
    task.archive_key = None
    repeated_batches.remove_task_content_digest(task)
    task.data_deleted_at = now
    task.train_deleted_at = task.train_deleted_at or now
    task.held_out_deleted_at = task.held_out_deleted_at or now
    deliveries.collect_webhook_event_until_commit(
        session, "task.data_deleted", row.owner_id, row.id, {"task": number}, now
    )
    data: AuditData = {"model": row.id, "number": number}
    record_audit_entry(
        session, actor, AuditedChange("task.delete-data", task.id, data, model=row.id), now
    )
    digests = {d for d in task.blob_digests if d}
    digests |= retention.delete_edit_undo_file_rows(session, TaskFileBeforeEdit.task_id == task.id)
    digests |= _mark_task_features_deleted(
        session, row.id, number, now
    ) | clear_feature_totals_in_model_row(row)
    digests |= set(retained_predictions.clear_prediction_digests_and_keys(session, row.id, number))
    digests |= reset_trials_of_unfinished_jobs(session, row.id, now)
    stored_bytes.mark_owner_bytes_outdated(session, row.owner_id)
    return archives, sorted(digests)


def _mark_task_features_deleted(session: Session, model: str, number: int, now: float) -> set[str]:
    """Mark the stored features of a task's images as deleted, in every version that has them.

    Return their digests.
    """
    versions = select(Version.id).where(Version.model_id == model)
    stored = select(VersionPart).where(
        VersionPart.version_id.in_(versions),
        VersionPart.type == FEATURES,
        VersionPart.deleted_at.is_(None),
    )
    name = f"{FEATURES}.{number}"
    digests = set()
    for part in session.scalars(stored.where(VersionPart.name.in_((name, f"{name}.{REST}")))):
        part.deleted_at = now
        digests.add(part.sha256)
    return digests


def _require_task_by_number(session: Session, model: Model, number: int) -> Task:
    task = session.scalar(select(Task).where(Task.model_id == model.id, Task.number == number))
    if task is None:
        raise NotFound(f"The model has no task {number}.")
    return task
