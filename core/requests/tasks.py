"""Tasks: accept a batch, show the history, delete a task's images.

A batch is accepted in one transaction (task, queued job with its resolved recipe, event, audit row,
idempotency record) after its archive is safe in the store; a transaction that fails leaves no archive.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import job_log
from core.db.jobs import move
from core.db.session import Database
from core.db.states import LEASED, UNFINISHED, Action, State
from core.db.tables import Event, Job, Model, Task
from core.errors import NotFound, WrongState
from core.ids import new_id
from core.ingest.equal_images import DuplicatesPolicy
from core.ingest.inspect import Directory
from core.kill_points import reached
from core.line.outlook import outlook
from core.line.standing import Standing
from core.recipe.resolve import Resolved, resolve
from core.recipe.stored import stored_override
from core.requests import batch_report, idempotency, jobs, quota
from core.requests.actor import Actor, find_model
from core.requests.admission import ANY, Admission, work_of
from core.requests.applicability import check_next_task
from core.requests.archive_keeping import kept
from core.requests.audit import record
from core.requests.class_names import compare
from core.requests.job_answer import shown as shown_job
from core.requests.pages import page
from core.requests.task_answer import of_tasks, show, shown
from core.requests.unused import delete_unused
from core.store import Blobs, Store

Json = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """An upload that is complete and checked.

    Attributes:
        path: the spooled archive, which is moved into the store.
        sha256: of the archive.
        recipe: override for this batch.
        duplicates_policy: what becomes of equal images, see `core.ingest.equal_images`.
    """

    path: Path
    sha256: str
    bytes: int
    directory: Directory
    name: str | None
    recipe: Json
    duplicates_policy: DuplicatesPolicy = "keep"


def admit(
    db: Database, actor: Actor, model: str, *, max_open_jobs: int, max_bytes: int, length: int | None
) -> None:
    """Before a body is read: does the model exist, and has its owner room for one more job and these bytes?

    Args:
        max_bytes: that the owner may store; 0: no limit.
        length: of the body in bytes, None when the client did not say.

    Raises:
        NotFound: the caller sees no such model.
        TooManyRequests: the owner has `max_open_jobs` unfinished jobs.
        StorageFull, BodyTooLarge: see `core.requests.quota`.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        quota.require_turn(session, row.owner_id, max_open_jobs)
    quota.require_room(db, row.owner_id, max_bytes, length)


def check(
    db: Database, catalogue: Json, actor: Actor, model: str, batch: Batch, admission: Admission = ANY
) -> Json:
    """What submitting this batch would say, without doing it (`?validate=only`).

    Raises: as `submit`.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        resolved = resolved_for(session, catalogue, row, batch, admission)
        known = batch_report.known_classes(session, row)
    found = batch.directory
    names = compare(found.classes, known)
    return {
        "valid": True,
        "sha256": batch.sha256,
        "bytes": batch.bytes,
        "media_type": found.media_type,
        "layout": found.layout,
        "classes": found.classes,
        "n_train": found.n_train,
        "n_test": found.n_test,
        "ignored": found.ignored,
        "notes": list(found.notes),
        "report": batch_report.report(found, names, batch.duplicates_policy),
        "checked": batch_report.CHECKED,
        "not_checked": batch_report.not_checked(found),
        "recipe": resolved.recipe,
        "warnings": [*resolved.warnings, *batch_report.warnings(found, names)],
    }


def submit(
    db: Database,
    store: Store,
    catalogue: Json,
    actor: Actor,
    model: str,
    batch: Batch,
    repeat: idempotency.Request | None,
    *,
    max_bytes: int = 0,
    max_open_jobs: int = 0,
    admission: Admission = ANY,
) -> tuple[Json, bool]:
    """Make a batch the model's next task; returns `{task, job}`, and whether it is a replay.

    Args:
        max_bytes: that the model's owner may store; 0: no limit.
        max_open_jobs: that the owner may have; 0: no limit.

    Raises:
        NotFound: the model is gone.
        StorageFull, TooManyRequests: the owner has no room for it, in the store or in the queue.
        LabelsInvalid: a class that the model does not know (data scenario).
        InvalidRecipe: the resolved recipe cannot be used.
        JobTooLarge: the job is beyond what `admission` takes.
        IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
    """
    override = stored_override(catalogue, batch.recipe)
    task_id = new_id("tsk")
    key = f"archives/{task_id}"
    with db.read() as session:  # a first look, so that little is moved in vain
        row = find_model(session, actor, model)
        resolved_for(session, catalogue, row, batch, admission)
        known = batch_report.known_classes(session, row)
    names = compare(batch.directory.classes, known)  # not where the model is locked: it may take a second
    quota.require_room(db, row.owner_id, max_bytes, batch.bytes)
    with kept(db, store, key, batch.path), db.write() as session:
        now = db.now(session)
        if repeat is not None:
            replay = idempotency.replayed(session, actor, repeat, now)
            if replay is not None:
                store.delete(key)
                return replay.body or {}, True
        row = find_model(session, actor, model, lock=True)
        resolved = resolved_for(session, catalogue, row, batch, admission)
        warnings = [*resolved.warnings, *batch_report.warnings(batch.directory, names)]
        report = batch_report.report(batch.directory, names, batch.duplicates_policy)
        task = _task(row, batch, task_id, key, report, warnings, now)
        session.add(task)
        session.flush()
        job = jobs.new_job(row, task, override, resolved.recipe, now)
        job.warnings = outlook(session, row).missing
        session.add(job)
        session.flush()
        session.add(Event(job_id=job.id, type="state", data={"state": job.state}, at=now))
        job_log.accepted(session, job, task, now)
        data = {"model": row.id, "number": task.number, "sha256": batch.sha256, "job": job.id}
        record(session, actor, "task.submit", task.id, data, now=now)
        answer = {"task": show(row, task, job, Standing.QUEUED), "job": shown_job(session, job)}
        if repeat is not None:
            headers = {"Location": f"/v1/jobs/{job.id}", "Retry-After": "1"}
            idempotency.remember(session, actor, repeat, 202, headers, answer, now)
        session.flush()
        quota.take(session, row.owner_id, max_bytes, batch.bytes)
        quota.take_turn(session, row.owner_id, max_open_jobs)
    reached("submit-committed")
    return answer, False


def list_tasks(db: Database, actor: Actor, model: str, limit: int, cursor: str | None) -> Json:
    """A page of a model's history, in order.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        found: list[Task] = []

        def keep(line: Any) -> Json:
            found.append(line[0])
            return {}

        result = page(session, select(Task).where(Task.model_id == row.id), Task.number, limit, cursor, keep)
        result["items"] = of_tasks(session, row, found)
        return result


def read(db: Database, actor: Actor, model: str, number: int) -> Json:
    """One task.

    Raises:
        NotFound: the caller sees no such model or task.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        return shown(session, row, _find(session, row, number))


def delete_data(db: Database, store: Store, blobs: Blobs, actor: Actor, model: str, number: int) -> None:
    """Remove a task's images: archive, training and held-out part. A second call changes nothing.

    Replayed images leave with the next version; later cells of the accuracy matrix are null. A job of the
    model that is running has them in its memory: it is given back, and goes on without them.

    Raises:
        NotFound: the caller sees no such model or task.
        WrongState: its job is not finished.
    """
    done = None
    while done is None:
        with db.write() as session:
            done = _erased(db, session, actor, model, number)
    for key in done[0]:
        store.delete(key)
    delete_unused(db, blobs, done[1])


def _erased(
    db: Database, session: Session, actor: Actor, model: str, number: int
) -> tuple[list[str], list[str]] | None:
    """Mark a task's images as deleted; returns keys and digests that go, or None: do it again.

    Locks are taken in the order of a publish (job, model, task), or each could wait for the other.
    """
    found = find_model(session, actor, model)
    leased = (Job.model_id == found.id, Job.place.is_not(None), Job.state.in_(sorted(LEASED)))
    held = session.scalars(select(Job).where(*leased).with_for_update()).one_or_none()
    row = find_model(session, actor, found.id, lock=True)
    if session.scalar(select(Job.id).where(*leased)) != (held.id if held is not None else None):
        return None  # claimed since: hold it too
    task = _find(session, row, number)
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
    if held is not None and held.state == State.RUNNING:
        move(session, held, Action.RELEASE, now, {"reason": f"the data of task {number} was deleted"})
    archives = [task.archive_key] if task.archive_key is not None else []
    task.archive_key = None
    task.data_deleted_at = now
    task.train_deleted_at = task.train_deleted_at or now
    task.held_out_deleted_at = task.held_out_deleted_at or now
    record(session, actor, "task.delete-data", task.id, {"model": row.id, "number": number}, now=now)
    return archives, sorted({d for d in (task.train_sha256, task.held_out_sha256) if d})


def resolved_for(
    session: Session, catalogue: Json, model: Model, batch: Batch, admission: Admission
) -> Resolved:
    """The recipe of a batch, with everything that a person should know about the batch in this model.

    Raises:
        LabelsInvalid, InvalidRecipe, JobTooLarge: as `submit`.
    """
    batch_report.check_classes(model, batch.directory)
    resolved = resolve(catalogue, model.scenario, model.recipe, batch.recipe, architecture=model.architecture)
    work = work_of(session, model, model.next_task, batch.directory.n_train)
    admission.check_job(catalogue, model.architecture, model.image, resolved.recipe, work)
    ahead = outlook(session, model)
    remarks = [
        *check_next_task(session, catalogue, model, resolved.recipe),
        *_remarks(session, model, batch),
        *ahead.missing,
        *ahead.others,
    ]
    return Resolved(resolved.recipe, [*resolved.warnings, *remarks])


def _task(
    row: Model, batch: Batch, task_id: str, key: str, report: Json, warnings: list[str], now: float
) -> Task:
    number = row.next_task
    row.next_task += 1
    found = batch.directory
    return Task(
        id=task_id,
        model_id=row.id,
        number=number,
        name=batch.name,
        sha256=batch.sha256,
        bytes=batch.bytes,
        archive_key=key,
        media_type=found.media_type,
        classes=found.classes,
        n_train=found.n_train if found.has_test else None,
        n_held_out=found.n_test if found.has_test else None,
        report=report,
        train_sha256=None,
        held_out_sha256=None,
        train_deleted_at=None,
        held_out_deleted_at=None,
        data_deleted_at=None,
        warnings=warnings,
        created_at=now,
    )


def _remarks(session: Session, model: Model, batch: Batch) -> list[str]:
    """What a person should know about this batch in this model."""
    remarks = []
    earlier = session.execute(
        select(Task.number, Task.name)
        .where(Task.model_id == model.id, Task.sha256 == batch.sha256)
        .order_by(Task.number)
        .limit(1)
    ).first()
    if earlier is not None:
        called = f" ({earlier.name})" if earlier.name else ""
        remarks.append(
            f"This batch repeats task {earlier.number}{called}: the same bytes were uploaded before."
        )
    return remarks


def _find(session: Session, model: Model, number: int) -> Task:
    task = session.scalar(select(Task).where(Task.model_id == model.id, Task.number == number))
    if task is None:
        raise NotFound(f"The model has no task {number}.")
    return task
