"""A job in the contract's shape, with what its answer says beside its row: what came of it, and what it waits for."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from core.db import workers
from core.db.jobs import is_unfinished
from core.db.polling import JobRow
from core.db.states import TERMINAL, State
from core.db.tables import Job, Model, Task, Version
from core.line.standing import Standing
from core.line.words import SETTLED_BY, lacks_base, waits_for_base
from core.protocol.answers.job import JobOut, Progress, WaitingFor
from core.protocol.error import JobError
from core.protocol.report import BatchCheck, ExportReport
from core.requests.times import rfc3339

_TERMINAL = frozenset(str(s) for s in TERMINAL)


class JobLike(Protocol):
    """A job as it was read: an ORM row or what a poll reads."""

    @property
    def id(self) -> str:
        """`job_…`."""

    @property
    def kind(self) -> str:
        """learn, validate, fetch or export."""

    @property
    def model_id(self) -> str:
        """`mdl_…`."""

    @property
    def task_number(self) -> int | None:
        """Of the task that it learns or checks; None: it is about none."""

    @property
    def state(self) -> str:
        """See `core.db.states`."""

    @property
    def revision(self) -> int:
        """Rises with every change of the row."""

    @property
    def attempt(self) -> int:
        """Starts so far."""

    @property
    def progress(self) -> Any:
        """What its process said last: phase, step, images."""

    @property
    def error(self) -> JobError | None:
        """Why it failed; None: it did not."""

    @property
    def version(self) -> int | None:
        """Number of the version that it made."""

    @property
    def recipe(self) -> Any:
        """As resolved when it was accepted."""

    @property
    def warnings(self) -> list[str]:
        """Sentences."""

    @property
    def retry_of(self) -> str | None:
        """The job that it repeats, `job_…`."""

    @property
    def report(self) -> BatchCheck | ExportReport | None:
        """What a job that makes no version has found or made."""

    @property
    def created_at(self) -> float:
        """Seconds since 1970."""

    @property
    def started_at(self) -> float | None:
        """Seconds since 1970, of its first claim; None: it was not claimed yet."""

    @property
    def finished_at(self) -> float | None:
        """Seconds since 1970; None: it is not over."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A task that the line of a job's model waits for: its number, where it stands, and its held version if
    there is one.

    again: whether a job is under way that learns it again.
    """

    task: int
    standing: str
    version: int | None
    again: bool


@dataclass(frozen=True, slots=True)
class MissingDevice:
    """CUDA devices that a queued job needs, and no worker that reports has.

    Attributes:
        gpus: how many.
        is_resumed: whether it needs them because it was started on one, and not because its recipe says so.
        seen_at: when a worker with so many last reported, in seconds since 1970; None: not within a day.
    """

    gpus: int
    is_resumed: bool
    seen_at: float | None


def missing_device(job: Job | JobRow, gpus: int, seen_at: float | None, now: float) -> MissingDevice | None:
    """Return what a job waits for that needs CUDA devices; None: a worker that has them reports.

    Args:
        gpus: that it needs.
        seen_at: when a worker with so many last reported.
        now: seconds since 1970.
    """
    if seen_at is not None and seen_at >= now - workers.SEEN_S:
        return None
    return MissingDevice(gpus, job.resume_on == "cuda", seen_at)


@dataclass(frozen=True, slots=True)
class BaseJob:
    """The job that brings the weights of a model's base, while a batch waits for them.

    Attributes:
        id: `job_…`.
        state: see `core.db.states`.
        revision: rises with every change of its row.
        progress: as its row has it.
        error: why it failed; None: it did not.
    """

    id: str
    state: str
    revision: int
    progress: Mapping[str, Any]
    error: JobError | None


def base_of(row: JobRow) -> BaseJob | None:
    """The job that brings the base for which a polled job waits; None: it waits for none."""
    if row.base is None or row.base_job is None:
        return None
    return BaseJob(row.base_job, row.base, row.base_revision or 0, row.base_progress or {}, row.base_error)


@dataclass(frozen=True, slots=True)
class Aside:
    """What a job's answer says beside its row.

    Attributes:
        outcome: status of the version that it made.
        stop: what it waits for, while it is queued.
        base: the job that brings the weights of its model's base, while it waits for them.
        device: the CUDA devices that it needs and no worker has, while it is queued.
    """

    outcome: str | None = None
    stop: Stop | None = None
    base: BaseJob | None = None
    device: MissingDevice | None = None


def to_json(job: JobLike, aside: Aside = Aside()) -> JobOut:
    """A job in the contract's shape."""
    return {
        "id": job.id,
        "kind": job.kind,
        "model": job.model_id,
        "task": job.task_number,
        "state": str(job.state),
        "is_terminal": job.state in _TERMINAL,
        "attempt": job.attempt,
        "progress": _progress(job.state, job.progress or {}),
        "error": job.error,
        "version": job.version,
        "outcome": aside.outcome,
        "waiting_for": _waiting_for(aside),
        "warnings": list(job.warnings or []),
        "recipe": job.recipe,
        "retry_of": job.retry_of,
        "report": job.report if job.state in _TERMINAL else None,
        "created_at": rfc3339(job.created_at),
        "started_at": rfc3339(job.started_at),
        "finished_at": rfc3339(job.finished_at),
    }


def etag(job: JobLike, aside: Aside) -> str:
    """The strong ETag of a job's answer: it changes with every change of the job, and of what is said beside it."""
    stop = aside.stop
    waits = "" if stop is None else f"-{stop.standing}-{stop.task}-{stop.version}-{stop.again:d}"
    base = "" if aside.base is None else f"-base-{aside.base.state}-{aside.base.revision}"
    device = "" if aside.device is None else f"-device-{aside.device.seen_at}"
    return f'"{job.id[4:]}-{job.revision}{f"-{aside.outcome}" if aside.outcome else ""}{base}{waits}{device}"'


def encoded(job: JobLike, aside: Aside) -> bytes:
    """The answer's bytes; equal ETags mean equal bytes."""
    return json.dumps(to_json(job, aside), separators=(",", ":"), ensure_ascii=False).encode()


class EncodedJobs:
    """Answers about jobs as they were last encoded, for as long as nothing in them changes."""

    MOST, MOST_BYTES = 1000, 20_000
    """Answers that are remembered, and the size up to which they are."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, bytes]] = {}

    def encode(self, job: JobLike, aside: Aside, tag: str) -> bytes:
        """Return `encoded(job, aside)`, whose ETag is `tag`."""
        known = self._known.get(job.id)
        if known is not None and known[0] == tag:
            return known[1]
        body = encoded(job, aside)
        if len(body) <= self.MOST_BYTES:
            if len(self._known) >= self.MOST:
                self._known.clear()
            self._known[job.id] = tag, body
        return body


def shown(session: Session, job: Job, model: Model | None = None) -> JobOut:
    """One job with what is said beside it. model: the job's, where the caller has read it."""
    session.flush()
    has_base = model is not None and model.base_job is None
    return to_json(job, asides(session, [job], with_base=[job.model_id] if has_base else [])[job.id])


def asides(session: Session, found: Sequence[Job], with_base: Collection[str] = ()) -> dict[str, Aside]:
    """Job id → what its answer says beside its row; a fixed number of queries for any number of jobs.

    Args:
        with_base: models that are known to have their base.
    """
    made = [job.id for job in found if job.version is not None]
    query = select(Version.job_id, Version.status).where(Version.job_id.in_(made))
    outcomes = {job_id: status for job_id, status in session.execute(query)} if made else {}
    waiting = {job.model_id for job in found if _waits_in_line(job)}
    stops: dict[str, Stop] = {}
    if waiting:
        newest = (
            select(func.max(Version.number))
            .where(Version.model_id == Task.model_id, Version.task_number == Task.number)
            .scalar_subquery()
        )
        again = exists().where(
            Job.task_id == Task.id, Job.model_id == Task.model_id, is_unfinished(Job.state)
        )
        tasks = select(Task.model_id, Task.number, Task.standing, newest, again).where(
            Task.model_id.in_(sorted(waiting)), Task.stops
        )
        for model_id, *stop in session.execute(tasks.order_by(Task.number.desc())):
            stops[model_id] = Stop(*stop)
    bases = _bases(session, {job.model_id for job in found if _has_place(job)} - set(with_base))
    devices = _missing_devices(session, found)
    return {
        job.id: Aside(
            outcomes.get(job.id),
            stops.get(job.model_id) if _waits_in_line(job) else None,
            bases.get(job.model_id) if _has_place(job) else None,
            devices.get(job.id),
        )
        for job in found
    }


def _bases(session: Session, models: set[str]) -> dict[str, BaseJob]:
    """Model id → the job that brings the weights of its base."""
    if not models:
        return {}
    query = select(Model.id, Job.id, Job.state, Job.revision, Job.progress, Job.error)
    found = session.execute(query.join(Job, Job.id == Model.base_job).where(Model.id.in_(sorted(models))))
    return {
        model: BaseJob(job_id, state, revision, progress, error)
        for model, job_id, state, revision, progress, error in found
    }


def _missing_devices(session: Session, found: Sequence[Job]) -> dict[str, MissingDevice]:
    """Job id → the CUDA devices that it waits for; one query, and none where no job needs them."""
    needing = [job for job in found if job.state == State.QUEUED and "cuda" in (job.device, job.resume_on)]
    if not needing:
        return {}
    reports = workers.cuda_workers(session)
    now = time.time()  # a clock that is a little off does no harm: a worker counts as there for 90 s
    missing = {
        job.id: missing_device(
            job, job.gpus, max((at for gpus, at in reports if gpus >= job.gpus), default=None), now
        )
        for job in needing
    }
    return {job_id: device for job_id, device in missing.items() if device is not None}


def _progress(state: str, stored: Mapping[str, Any]) -> Progress:
    return {
        "done": _done(state, stored),
        "left_s": None if state in _TERMINAL else stored.get("left_s"),
        "phase": stored.get("phase"),
        "epoch": stored.get("epoch"),
        "step": stored.get("step"),
        "total_steps": stored.get("total_steps"),
        "images_per_s": stored.get("images_per_s"),
        "eta_s": stored.get("eta_s"),
    }


def _done(state: str, stored: Mapping[str, Any]) -> float | None:
    """The share of the whole job: 0 before its first phase, and unknown where older code has written the phase."""
    if state == State.SUCCEEDED:
        return 1.0
    done: float | None = stored.get("done", None if stored.get("phase") else 0.0)
    return done


def _has_place(job: Job) -> bool:
    return job.state == State.QUEUED and job.place is not None


def _waits_in_line(job: Job) -> bool:
    return _has_place(job) and not job.again


def _waiting_for(aside: Aside) -> WaitingFor | None:
    if aside.base is not None:
        return _waiting_for_base(aside.base)
    if aside.stop is not None:
        return _waiting_for_task(aside.stop)
    return None if aside.device is None else _waiting_for_device(aside.device)


def _waiting_for_base(base: BaseJob) -> WaitingFor:
    ended = base.state in _TERMINAL
    return {
        "kind": "base",
        "version": None,
        "task": None,
        "detail": lacks_base(base.id, base.error) if ended else waits_for_base(base.id),
        "job": base.id,
        "failed": ended,
        "done": _done(base.state, base.progress),
    }


def _waiting_for_device(device: MissingDevice) -> WaitingFor:
    many = "a CUDA device" if device.gpus == 1 else f"{device.gpus} CUDA devices"
    since = "for a day" if device.seen_at is None else f"since {rfc3339(device.seen_at)}"
    why, else_ = f"asks for {many}", '{"resources": {"device": "any", "gpus": 1}}'
    if device.is_resumed:
        why = "was started on a CUDA device and continues only on one"
        else_ = '{"resources": {"resume": "any"}}, to continue on a CPU'
    detail = (
        f"This job {why}, and no worker with {many} has reported {since}. Start one, or cancel the job and retry it "
        f"with the recipe {else_}."
    )
    return {"kind": "device", "version": None, "task": None, "detail": detail}


def _waiting_for_task(stop: Stop) -> WaitingFor:
    what = f"version {stop.version} of task {stop.task} is held by its gate"
    if stop.standing != Standing.HELD:
        what = (
            f"task {stop.task} was {stop.standing}"
            if stop.standing == "rejected"
            else f"task {stop.task} failed"
        )
    settled_by = "It is being learned again." if stop.again else SETTLED_BY
    detail = f"This job waits, since {what}. {settled_by}"
    return {"kind": stop.standing, "version": stop.version, "task": stop.task, "detail": detail}
