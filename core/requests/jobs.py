"""Jobs: read, list, stop, continue and retry them.

What a job may do in its state is decided by `core.db.states` alone; here each action is one transaction
with the change, its event and its audit row.
"""

import json
from typing import Any, Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.jobs import locked, move
from core.db.session import Database
from core.db.states import TERMINAL, UNFINISHED, Action, State
from core.db.tables import Event, Job, Model, Task, Version
from core.errors import Invalid, NotFound, WrongState
from core.ids import is_id, new_id
from core.requests import quota
from core.requests.actor import Actor, find_model
from core.requests.applicability import check_next_task
from core.requests.audit import record
from core.requests.pages import page
from core.requests.recipe import resolve
from core.requests.times import rfc3339
from core.store import Store

Json = dict[str, Any]
PROGRESS = ("phase", "epoch", "step", "total_steps", "images_per_s", "eta_s")
_TERMINAL = frozenset(str(s) for s in TERMINAL)


class JobLike(Protocol):
    """A job as it was read: an ORM row or a hot read."""

    @property
    def id(self) -> str: ...
    @property
    def model_id(self) -> str: ...
    @property
    def task_number(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def progress(self) -> Any: ...
    @property
    def error(self) -> Any: ...
    @property
    def version(self) -> int | None: ...
    @property
    def recipe(self) -> Any: ...
    @property
    def retry_of(self) -> str | None: ...
    @property
    def created_at(self) -> float: ...
    @property
    def started_at(self) -> float | None: ...
    @property
    def finished_at(self) -> float | None: ...


def show(job: JobLike) -> Json:
    """A job in the contract's shape."""
    progress = job.progress or {}
    return {
        "id": job.id,
        "model": job.model_id,
        "task": job.task_number,
        "state": str(job.state),
        "is_terminal": job.state in _TERMINAL,
        "attempt": job.attempt,
        "progress": {key: progress.get(key) for key in PROGRESS},
        "error": job.error,
        "version": job.version,
        "recipe": job.recipe,
        "retry_of": job.retry_of,
        "created_at": rfc3339(job.created_at),
        "started_at": rfc3339(job.started_at),
        "finished_at": rfc3339(job.finished_at),
    }


def etag(job: JobLike) -> str:
    """The strong ETag of a job's answer: it changes with every change of the job."""
    return f'"{job.id[4:]}-{job.revision}"'


def encoded(job: JobLike) -> bytes:
    """The answer's bytes; equal ETags mean equal bytes."""
    return json.dumps(show(job), separators=(",", ":"), ensure_ascii=False).encode()


def missing(job_id: str) -> NotFound:
    """The error for a job that the caller does not see."""
    return NotFound(f"There is no job {job_id[:60]!r}.")


def list_jobs(
    db: Database, actor: Actor, *, state: str | None, model: str | None, limit: int, cursor: str | None
) -> Json:
    """A page of jobs, newest first.

    Raises:
        NotFound: the named model does not exist for the caller.
        Invalid: an unknown state.
    """
    if state is not None and state not in set(State):
        raise Invalid(f"Unknown state {state[:40]!r}.", fields=[{"field": "state", "message": "unknown"}])
    with db.read() as session:
        query = select(Job)
        if model is not None:
            # Of one model, which the caller sees, there are few: no index of owners or states is to be tempting.
            query = query.where(Job.model_id == find_model(session, actor, model).id)
            query = query if state is None else query.where(Job.state + "" == state)
        else:
            query = query.where(actor.filter(Job.owner_id))
            query = query if state is None else query.where(Job.state == state)
        return page(session, query, Job.id, limit, cursor, lambda row: show(row[0]), descending=True)


def act(db: Database, store: Store, actor: Actor, job_id: str, action: Action) -> Json:
    """Cancel, pause or resume; asking for what already is changes nothing.

    Raises:
        NotFound: the caller sees no such job.
        WrongState: not possible now; `extra["state"]` says where the job is.
    """
    archive: str | None = None
    with db.write() as session:
        job = _mine(session, actor, job_id)
        now = db.now(session)
        before = job.state
        state = move(session, job, action, now)
        if job.state != before:
            record(session, actor, f"job.{action}", job.id, {"from": before, "to": job.state}, now=now)
        if state is State.CANCELLED:
            archive = forget(session, job)
        answer = show(job)
    if archive is not None:
        store.delete(archive)
    return answer


def forget(session: Session, job: Job) -> str | None:
    """The raw archive of a job that will never be learned loses its name; returns its store key."""
    task = session.get_one(Task, job.task_id, with_for_update=True)
    key, task.archive_key = task.archive_key, None
    return key


def retry(
    db: Database, catalogue: Json, actor: Actor, job_id: str, override: Json | None, *, max_open_jobs: int = 0
) -> tuple[Json, bool]:
    """Learn a task again: a failed job, or one whose version was held by its gate.

    A failed job goes back to the end of its model's line. A held version keeps its job; a new job of the
    same task is made, once: a second request returns the job that is open.

    Args:
        override: recipe override in place of the one that the batch was submitted with; None keeps it.
        max_open_jobs: that the owner may have; 0: no limit.

    Returns:
        The job, and whether there is something new to do.

    Raises:
        NotFound: the caller sees no such job.
        WrongState: neither failed nor held; or its training data is gone.
        InvalidRecipe: the recipe cannot be used.
        TooManyRequests: the owner has no room for one more open job.
    """
    with db.write() as session:
        job = _mine(session, actor, job_id)
        model = session.get_one(Model, job.model_id, with_for_update=True)
        if model.deleted_at is not None:
            raise missing(job_id)
        now = db.now(session)
        task = session.get_one(Task, job.task_id)
        patch = job.recipe_override if override is None else override
        if job.state == State.SUCCEEDED:
            answer, fresh = _again(session, actor, catalogue, model, task, job, patch, now)
            if fresh:
                quota.take_turn(session, model.owner_id, max_open_jobs)
            return show(answer), fresh
        before = job.state
        if before != State.FAILED:
            state = move(session, job, Action.RETRY, now)  # raises, or changes nothing
            if override is not None and override != job.recipe_override:
                raise WrongState(
                    f"The job is {state} already; its recipe cannot change now.", extra={"state": str(state)}
                )
            return show(job), False
        _usable(task, job)
        resolved = resolve(catalogue, model.scenario, model.recipe, patch, architecture=model.architecture)
        check_next_task(session, catalogue, model, resolved.recipe)
        job.recipe_override, job.recipe, job.gate = patch, resolved.recipe, model.gate
        job.place = model.next_place
        model.next_place += 1
        job.strikes, job.error, job.progress = 0, None, {}
        # The parent is chosen at the next claim; a snapshot of another parent or recipe is left out then.
        job.not_before = job.parent_version = job.anytime = None
        move(session, job, Action.RETRY, now)
        record(session, actor, "job.retry", job.id, {"from": before, "to": job.state}, now=now)
        session.flush()
        quota.take_turn(session, model.owner_id, max_open_jobs)
        return show(job), True


def _again(
    session: Session,
    actor: Actor,
    catalogue: Json,
    model: Model,
    task: Task,
    job: Job,
    patch: Json,
    now: float,
) -> tuple[Job, bool]:
    held = session.scalar(select(Version.status).where(Version.job_id == job.id))
    if held != "held":
        raise WrongState("The job has succeeded and its version is published.", extra={"state": job.state})
    open_one = session.scalar(
        select(Job)
        .where(Job.task_id == task.id, Job.id != job.id, Job.state.in_(sorted(UNFINISHED)))
        .limit(1)
    )
    if open_one is not None:
        return open_one, False
    _usable(task, job)
    resolved = resolve(catalogue, model.scenario, model.recipe, patch, architecture=model.architecture)
    check_next_task(session, catalogue, model, resolved.recipe)
    fresh = new_job(model, task, patch, resolved.recipe, now, retry_of=job.id)
    session.add(fresh)
    session.flush()
    session.add(Event(job_id=fresh.id, type="state", data={"state": fresh.state, "retry_of": job.id}, at=now))
    record(session, actor, "job.retry", fresh.id, {"retry_of": job.id}, now=now)
    return fresh, True


def new_job(
    model: Model, task: Task, override: Json, recipe: Json, now: float, *, retry_of: str | None = None
) -> Job:
    """A queued job at the end of its model's line; the caller holds the model's row."""
    place = model.next_place
    model.next_place += 1
    return Job(
        id=new_id("job"),
        model_id=model.id,
        owner_id=model.owner_id,
        task_id=task.id,
        task_number=task.number,
        place=place,
        state=str(State.QUEUED),
        revision=1,
        recipe_override=override,
        recipe=recipe,
        gate=model.gate,
        retry_of=retry_of,
        attempt=0,
        strikes=0,
        fence=None,
        worker=None,
        lease_until=None,
        rung_at=None,
        not_before=None,
        parent_version=None,
        snapshot=None,
        anytime=None,
        progress={},
        error=None,
        version=None,
        created_at=now,
        started_at=None,
        finished_at=None,
    )


def _usable(task: Task, job: Job) -> None:
    decoded = task.train_sha256 is not None and task.train_deleted_at is None
    if task.data_deleted_at is not None or not (decoded or task.archive_key is not None):
        raise WrongState(
            "The training data of this task is gone: upload the batch again.", extra={"state": job.state}
        )


def _mine(session: Session, actor: Actor, job_id: str) -> Job:
    job = locked(session, job_id) if is_id(job_id, "job") else None
    if job is None or not actor.sees(job.owner_id):
        raise missing(job_id)
    return job
