"""Tasks: accept a batch, show the history, delete a task's images.

A batch is accepted in one transaction (task, queued job with its resolved recipe, event, audit row,
idempotency record) after its archive is safe in the store; a transaction that fails leaves no archive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from core.db.jobs import move
from core.db.session import Database
from core.db.states import LEASED, UNFINISHED, Action, State
from core.db.tables import Event, Job, Model, Result, Task
from core.errors import LabelsInvalid, NotFound, PerennialError, WrongState
from core.ids import new_id
from core.ingest.inspect import Directory
from core.kill_points import reached
from core.requests import idempotency, jobs, quota
from core.requests.actor import Actor, find_model
from core.requests.applicability import check_next_task
from core.requests.audit import record
from core.requests.pages import page
from core.requests.recipe import Resolved, resolve
from core.requests.times import rfc3339
from core.requests.unused import delete_unused
from core.requests.versions import newest_published
from core.store import Blobs, Store

Json = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """An upload that is complete and checked.

    Attributes:
        path: the spooled archive, which is moved into the store.
        sha256: of the archive.
        recipe: override for this batch.
    """

    path: Path
    sha256: str
    bytes: int
    directory: Directory
    name: str | None
    recipe: Json


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


def check(db: Database, catalogue: Json, actor: Actor, model: str, batch: Batch) -> Json:
    """What submitting this batch would say, without doing it (`?validate=only`).

    Raises: as `submit`.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        _labels(row, batch.directory)
        resolved = _resolved(session, catalogue, row, batch)
    found = batch.directory
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
        "recipe": resolved.recipe,
        "warnings": resolved.warnings,
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
        IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
    """
    task_id = new_id("tsk")
    key = f"archives/{task_id}"
    with db.read() as session:  # a first look, so that little is moved in vain
        row = find_model(session, actor, model)
        _labels(row, batch.directory)
        _resolved(session, catalogue, row, batch)
    quota.require_room(db, row.owner_id, max_bytes, batch.bytes)
    store.put_file(key, batch.path, move=True)
    reached("submit-stored")
    try:
        with db.write() as session:
            now = db.now(session)
            if repeat is not None:
                replay = idempotency.replayed(session, actor, repeat, now)
                if replay is not None:
                    store.delete(key)
                    return replay.body or {}, True
            row = find_model(session, actor, model, lock=True)
            _labels(row, batch.directory)
            resolved = _resolved(session, catalogue, row, batch)
            task = _task(row, batch, task_id, key, resolved.warnings, now)
            session.add(task)
            session.flush()
            job = jobs.new_job(row, task, batch.recipe, resolved.recipe, now)
            session.add(job)
            session.flush()
            session.add(Event(job_id=job.id, type="state", data={"state": job.state}, at=now))
            data = {"model": row.id, "number": task.number, "sha256": batch.sha256, "job": job.id}
            record(session, actor, "task.submit", task.id, data, now=now)
            answer = {"task": _show(task, job, None, None), "job": jobs.show(job)}
            if repeat is not None:
                headers = {"Location": f"/v1/jobs/{job.id}", "Retry-After": "1"}
                idempotency.remember(session, actor, repeat, 202, headers, answer, now)
            session.flush()
            quota.take(session, row.owner_id, max_bytes, batch.bytes)
            quota.take_turn(session, row.owner_id, max_open_jobs)
    except (SQLAlchemyError, PerennialError):
        # A commit whose answer was lost may have happened after all: only what nobody names is removed.
        if not _accepted(db, task_id):
            store.delete(key)
        raise
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
        result["items"] = _shown(session, row, found)
        return result


def read(db: Database, actor: Actor, model: str, number: int) -> Json:
    """One task.

    Raises:
        NotFound: the caller sees no such model or task.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        return _shown(session, row, [_find(session, row, number)])[0]


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
    leased = (Job.model_id == found.id, Job.state.in_(sorted(LEASED)))
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


def _resolved(session: Session, catalogue: Json, model: Model, batch: Batch) -> Resolved:
    """The recipe of a batch, with everything that a person should know about the batch in this model."""
    resolved = resolve(catalogue, model.scenario, model.recipe, batch.recipe, architecture=model.architecture)
    remarks = [*check_next_task(session, catalogue, model, resolved.recipe), *_remarks(session, model, batch)]
    return Resolved(resolved.recipe, [*resolved.warnings, *remarks])


def _task(row: Model, batch: Batch, task_id: str, key: str, warnings: list[str], now: float) -> Task:
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
        report={"rejected": [], "ignored": found.ignored, "duplicates": 0, "notes": list(found.notes)},
        train_sha256=None,
        held_out_sha256=None,
        train_deleted_at=None,
        held_out_deleted_at=None,
        data_deleted_at=None,
        warnings=warnings,
        created_at=now,
    )


def _labels(model: Model, found: Directory) -> None:
    if model.scenario != "data" or model.classes is None:
        return
    unknown = sorted(set(found.classes) - set(model.classes))
    if unknown:
        more = f" and {len(unknown) - 20} more" if len(unknown) > 20 else ""
        raise LabelsInvalid(
            f"This model knows a fixed list of classes; the batch also has {', '.join(unknown[:20])}{more}.",
            extra={"unknown": unknown[:1000], "classes": model.classes},
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


def _accepted(db: Database, task_id: str) -> bool:
    """Whether the task is there after all; when nobody can say, it is taken to be (the sweep looks again)."""
    try:
        with db.read() as session:
            return session.get(Task, task_id) is not None
    except SQLAlchemyError:
        return True


def _shown(session: Session, model: Model, found: Sequence[Task]) -> list[Json]:
    """Tasks with their newest job and how well they were and are known."""
    newest: dict[str, Job] = {}
    published: dict[int, int] = {}
    ids = [task.id for task in found]
    for job in session.scalars(select(Job).where(Job.task_id.in_(ids)).order_by(Job.place)):
        newest[job.task_id] = job
        if job.version is not None:
            published[job.task_number] = job.version
    latest = newest_published(session, model.id)
    cells: dict[tuple[int, int], float] = {}
    published_cells = [(version, number) for number, version in published.items()]
    wanted = {latest, *published.values()} - {None}
    query = select(Result.version, Result.task, Result.correct, Result.total).where(
        Result.model_id == model.id,
        Result.version.in_(sorted(wanted, key=lambda v: v or 0)),
        Result.task.in_([t.number for t in found]),
        tuple_(Result.version, Result.task).in_([*published_cells, *((latest, t.number) for t in found)]),
    )
    for cell in session.execute(query):
        if cell.total:
            cells[cell.version, cell.task] = cell.correct / cell.total
    shown = []
    for task in found:
        version = published.get(task.number)
        learned = cells.get((version, task.number)) if version is not None else None
        now = None
        if task.data_deleted_at is None and version is not None and latest is not None:
            now = cells.get((latest, task.number))
        shown.append(_show(task, newest.get(task.id), learned, now, version))
    return shown


def _show(
    task: Task, job: Job | None, learned: float | None, now: float | None, version: int | None = None
) -> Json:
    return {
        "id": task.id,
        "number": task.number,
        "name": task.name,
        "sha256": task.sha256,
        "bytes": task.bytes,
        "classes": task.classes,
        "n_train": task.n_train,
        "n_held_out": task.n_held_out,
        "report": task.report,
        "job": job.id if job is not None else None,
        "state": str(job.state) if job is not None else None,
        "recipe": job.recipe if job is not None else None,
        "version": version,
        "accuracy_when_learned": learned,
        "accuracy_now": now,
        "data_deleted_at": rfc3339(task.data_deleted_at),
        "created_at": rfc3339(task.created_at),
        "warnings": list(task.warnings),
    }
