"""A job in the JSON form of the API, with the facts beside its row: its outcome, and its reason to
wait."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, SQLColumnExpression, exists, func, select
from sqlalchemy.orm import Session

from core.contract.error import JobError
from core.contract.reports.report import BatchCheck, ExportReport
from core.contract.responses.job import JobOut, Progress, WaitingFor
from core.database.jobs import build_unfinished_job_condition
from core.database.polling import PolledJobRow
from core.database.states import TERMINAL, JobState
from core.database.tables import Job, Model, Task, Version
from core.jobs import workers
from core.lineage.standing import TaskStanding
from core.lineage.wording import (
    SETTLED_BY,
    explain_batch_waiting_for_base,
    explain_missing_base_weights,
)
from core.requests.timestamps import format_rfc3339

_TERMINAL = frozenset(str(s) for s in TERMINAL)


class JobLike(Protocol):
    """Protocol of a job as it was read from the database: an ORM row, or the row of a poll."""

    @property
    def id(self) -> str:
        """Id of the job, `job_…`."""

    @property
    def kind(self) -> str:
        """Kind of the job: learn, edit, validate, fetch, measure or export."""

    @property
    def model_id(self) -> str:
        """Id of the job's model, `mdl_…`."""

    @property
    def task_number(self) -> int | None:
        """Number of the task that the job learns or checks; None: it has none."""

    @property
    def state(self) -> str:
        """State of the job; see `core.database.states`."""

    @property
    def revision(self) -> int:
        """Number that rises with every change of the job's row."""

    @property
    def attempt(self) -> int:
        """Number of times that a worker has started the job."""

    @property
    def progress(self) -> Any:
        """Last report of the job's process: phase, step, images."""

    @property
    def error(self) -> JobError | None:
        """Error that the job failed with; None: it did not fail."""

    @property
    def version(self) -> int | None:
        """Number of the version that the job made."""

    @property
    def recipe(self) -> Any:
        """Recipe of the job, as completed when the job was accepted."""

    @property
    def warnings(self) -> list[str]:
        """Warnings about the job, as sentences."""

    @property
    def retry_of(self) -> str | None:
        """Id of the job that this job repeats, `job_…`."""

    @property
    def report(self) -> BatchCheck | ExportReport | None:
        """Report of a job that makes no version: its findings, or the file it made."""

    @property
    def created_at(self) -> float:
        """Time of the job's creation in seconds since 1970."""

    @property
    def started_at(self) -> float | None:
        """Time when a worker first claimed the job, in seconds since 1970; None: not claimed yet."""

    @property
    def finished_at(self) -> float | None:
        """Time when the job ended, in seconds since 1970; None: it has not ended."""


@dataclass(frozen=True, slots=True)
class LineageStoppingTask:
    """The task that stops a model's lineage, so that a job waits: number, standing, and held
    version if any.

    `again`: a job that learns it again is under way.
    """

    task: int
    standing: str
    version: int | None
    again: bool


@dataclass(frozen=True, slots=True)
class AwaitedCudaDevices:
    """CUDA devices that a queued job needs and no reporting worker has.

    Attributes:
        gpus: number of devices.
        is_resumed: True if it was started on one, False if its recipe asks for them.
        seen_at: when a worker with so many last reported, in seconds since 1970; None: not within a
            day.
    """

    gpus: int
    is_resumed: bool
    seen_at: float | None


def find_missing_cuda_devices(
    job: Job | PolledJobRow, gpus: int, seen_at: float | None, now: float
) -> AwaitedCudaDevices | None:
    """Return the CUDA devices that a queued job waits for; None if a reporting worker has them.

    Args:
        gpus: number of devices that it needs.
        seen_at: time of the last report of a worker with so many, in seconds since 1970.
        now: seconds since 1970.
    """
    if seen_at is not None and seen_at >= now - workers.SEEN_S:
        return None
    return AwaitedCudaDevices(gpus, job.resume_on == "cuda", seen_at)


@dataclass(frozen=True, slots=True)
class BaseWeightsFetchingJob:
    """The job that downloads the weights of a model's base, while a batch waits for them.

    Attributes:
        id: `job_…`.
        state: see `core.database.states`.
        revision: rises with every change of its row.
        progress: progress as stored in its row.
        error: error that it failed with; None: it did not fail.
    """

    id: str
    state: str
    revision: int
    progress: Mapping[str, Any]
    error: JobError | None


def get_awaited_base_fetching_job(row: PolledJobRow) -> BaseWeightsFetchingJob | None:
    """Return the job that downloads the base weights for which a polled job waits; None: it waits
    for none.
    """
    if row.base is None or row.base_job is None:
        return None
    return BaseWeightsFetchingJob(
        row.base_job, row.base, row.base_revision or 0, row.base_progress or {}, row.base_error
    )


@dataclass(frozen=True, slots=True)
class JobResponseContext:
    """Facts that the response about a job shows besides the job's row.

    Attributes:
        outcome: status of the version that it made.
        stop: the task that it waits for, while it is queued.
        base: the job that fetches the weights of its model's base, while it waits for them.
        device: the CUDA devices that it needs and no worker has, while it is queued.
    """

    outcome: str | None = None
    stop: LineageStoppingTask | None = None
    base: BaseWeightsFetchingJob | None = None
    device: AwaitedCudaDevices | None = None


def job_to_json(job: JobLike, facts: JobResponseContext = JobResponseContext()) -> JobOut:
    """Convert a job to the JSON form of the API."""
    return {
        "id": job.id,
        "kind": job.kind,
        "model": job.model_id,
        "task": job.task_number,
        "state": str(job.state),
        "is_terminal": job.state in _TERMINAL,
        "attempt": job.attempt,
        "progress": _build_job_progress_response(job.state, job.progress or {}),
        "error": job.error,
        "version": job.version,
        "outcome": facts.outcome,
        "waiting_for": _build_job_wait_response(facts),
        "warnings": list(job.warnings or []),
        "recipe": job.recipe,
        "retry_of": job.retry_of,
        # Until it ends, a job that checks a batch has only a preliminary report.
        "report": job.report if job.state in _TERMINAL else None,
        "created_at": format_rfc3339(job.created_at),
        "started_at": format_rfc3339(job.started_at),
        "finished_at": format_rfc3339(job.finished_at),
    }


def build_job_etag(job: JobLike, facts: JobResponseContext) -> str:
    """Return the strong ETag of a job's response, which changes whenever the response does."""
    stop = facts.stop
    waits = "" if stop is None else f"-{stop.standing}-{stop.task}-{stop.version}-{stop.again:d}"
    base = "" if facts.base is None else f"-base-{facts.base.state}-{facts.base.revision}"
    device = "" if facts.device is None else f"-device-{facts.device.seen_at}"
    outcome = f"-{facts.outcome}" if facts.outcome else ""
    return f'"{job.id[4:]}-{job.revision}{outcome}{base}{waits}{device}"'


def encode_job_response(job: JobLike, facts: JobResponseContext) -> bytes:
    """Encode a job's response as JSON bytes; equal ETags mean equal bytes."""
    return json.dumps(job_to_json(job, facts), separators=(",", ":"), ensure_ascii=False).encode()


class EncodedJobCache:
    """Cache of job responses encoded as JSON, each valid until the job changes."""

    MOST, MOST_BYTES = 1000, 20_000
    """Most responses that are cached, and the largest size in bytes of each."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, bytes]] = {}

    def encode_job_response_cached(
        self, job: JobLike, facts: JobResponseContext, tag: str
    ) -> bytes:
        """Return the encoded response of a job from the cache, or encode it; `tag` is its ETag."""
        cached = self._known.get(job.id)
        if cached is not None and cached[0] == tag:
            return cached[1]
        body = encode_job_response(job, facts)
        if len(body) <= self.MOST_BYTES:
            # Emptied at once: the jobs that are polled now fill it again.
            if len(self._known) >= self.MOST:
                self._known.clear()
            self._known[job.id] = tag, body
        return body


def build_job_response(
    session: Session, job: Job, model: Model | None = None, *, may_be_stopped: bool = True
) -> JobOut:
    """Return one job in the JSON form of the API, with facts read for it.

    Args:
        model: the job's, if the caller has read it.
        may_be_stopped: False if the caller has read that no task stops the model.
    """
    # The queries below must see the caller's changes, and sessions do not flush before a query.
    session.flush()
    with_base = [] if model is None or model.base_job is not None else [job.model_id]
    unstopped = [] if may_be_stopped else [job.model_id]
    return job_to_json(
        job, read_job_response_contexts(session, [job], with_base, unstopped)[job.id]
    )


def build_model_stopped_condition(model_id: SQLColumnExpression[str]) -> ColumnElement[bool]:
    """Build the SQL condition that a task stops the lineage of the model with that id."""
    return exists().where(Task.model_id == model_id, Task.stops)


def read_job_response_contexts(
    session: Session,
    jobs: Sequence[Job],
    with_base: Collection[str] = (),
    unstopped: Collection[str] = (),
) -> dict[str, JobResponseContext]:
    """Return by job id the facts that its response shows besides its row, in a fixed number of
    queries.

    Args:
        with_base: models that are known to have their base.
        unstopped: models that are known to have no task that stops them.
    """
    version_job_ids = [job.id for job in jobs if job.version is not None]
    query = select(Version.job_id, Version.status).where(Version.job_id.in_(version_job_ids))
    outcomes = (
        {job_id: status for job_id, status in session.execute(query)} if version_job_ids else {}
    )
    waiting = {job.model_id for job in jobs if _is_waiting_for_earlier_task(job)} - set(unstopped)
    stops: dict[str, LineageStoppingTask] = {}
    if waiting:
        newest = (
            select(func.max(Version.number))
            .where(Version.model_id == Task.model_id, Version.task_number == Task.number)
            .scalar_subquery()
        )
        # By the model too, with which the index of unfinished jobs begins.
        has_unfinished_job = exists().where(
            Job.task_id == Task.id,
            Job.model_id == Task.model_id,
            build_unfinished_job_condition(Job.state),
        )
        tasks = select(Task.model_id, Task.number, Task.standing, newest, has_unfinished_job).where(
            Task.model_id.in_(sorted(waiting)), Task.stops
        )
        # Descending, so that the first of several tasks remains.
        for model_id, *stop in session.execute(tasks.order_by(Task.number.desc())):
            stops[model_id] = LineageStoppingTask(*stop)
    bases = _find_base_weights_fetching_jobs(
        session,
        {job.model_id for job in jobs if _is_queued_with_lineage_place(job)} - set(with_base),
    )
    devices = _find_missing_cuda_devices_by_job(session, jobs)
    return {
        job.id: JobResponseContext(
            outcomes.get(job.id),
            stops.get(job.model_id) if _is_waiting_for_earlier_task(job) else None,
            bases.get(job.model_id) if _is_queued_with_lineage_place(job) else None,
            devices.get(job.id),
        )
        for job in jobs
    }


def _find_base_weights_fetching_jobs(
    session: Session, models: set[str]
) -> dict[str, BaseWeightsFetchingJob]:
    """Return by model id the job that downloads the weights of the model's base."""
    if not models:
        return {}
    query = select(Model.id, Job.id, Job.state, Job.revision, Job.progress, Job.error)
    rows = session.execute(
        query.join(Job, Job.id == Model.base_job).where(Model.id.in_(sorted(models)))
    )
    return {
        model: BaseWeightsFetchingJob(job_id, state, revision, progress, error)
        for model, job_id, state, revision, progress, error in rows
    }


def _find_missing_cuda_devices_by_job(
    session: Session, jobs: Sequence[Job]
) -> dict[str, AwaitedCudaDevices]:
    """Return by job id the CUDA devices that the job waits for, in one query."""
    needing = [
        job
        for job in jobs
        if job.state == JobState.QUEUED and "cuda" in (job.device, job.resume_on)
    ]
    if not needing:
        return {}
    reports = workers.list_last_reports_by_cuda_count(session)
    now = time.time()  # a slightly wrong clock does no harm: a worker counts as present for 90 s
    missing = {
        job.id: find_missing_cuda_devices(
            job, job.gpus, max((at for gpus, at in reports if gpus >= job.gpus), default=None), now
        )
        for job in needing
    }
    return {job_id: device for job_id, device in missing.items() if device is not None}


def _build_job_progress_response(state: str, stored: Mapping[str, Any]) -> Progress:
    return {
        "done": _read_job_share_done(state, stored),
        "left_s": None if state in _TERMINAL else stored.get("left_s"),
        "phase": stored.get("phase"),
        "epoch": stored.get("epoch"),
        "step": stored.get("step"),
        "total_steps": stored.get("total_steps"),
        "images_per_s": stored.get("images_per_s"),
        "eta_s": stored.get("eta_s"),
    }


def _read_job_share_done(state: str, stored: Mapping[str, Any]) -> float | None:
    """Return which share of the whole job is done: 0 before its first phase; None if older code
    wrote it.
    """
    if state == JobState.SUCCEEDED:
        return 1.0
    done: float | None = stored.get("done", None if stored.get("phase") else 0.0)
    return done


def _is_queued_with_lineage_place(job: Job) -> bool:
    return job.state == JobState.QUEUED and job.place is not None


def _is_waiting_for_earlier_task(job: Job) -> bool:
    return _is_queued_with_lineage_place(job) and not job.again


def _build_job_wait_response(facts: JobResponseContext) -> WaitingFor | None:
    if facts.base is not None:
        return _build_base_wait_response(facts.base)
    if facts.stop is not None:
        return _build_task_wait_response(facts.stop)
    return None if facts.device is None else _build_device_wait_response(facts.device)


def _build_base_wait_response(base: BaseWeightsFetchingJob) -> WaitingFor:
    ended = base.state in _TERMINAL
    return {
        "kind": "base",
        "version": None,
        "task": None,
        "detail": explain_missing_base_weights(base.id, base.error)
        if ended
        else explain_batch_waiting_for_base(base.id),
        "job": base.id,
        "failed": ended,
        "done": _read_job_share_done(base.state, base.progress),
    }


def _build_device_wait_response(device: AwaitedCudaDevices) -> WaitingFor:
    devices = "a CUDA device" if device.gpus == 1 else f"{device.gpus} CUDA devices"
    since = "for a day" if device.seen_at is None else f"since {format_rfc3339(device.seen_at)}"
    why, else_ = f"asks for {devices}", '{"resources": {"device": "any", "gpus": 1}}'
    if device.is_resumed:
        why = "was started on a CUDA device and continues only on one"
        else_ = '{"resources": {"resume": "any"}}, to continue on a CPU'
    detail = (
        f"This job {why}, and no worker with {devices} has reported {since}. Start one, or cancel "
        f"the job and retry it with the recipe {else_}."
    )
    return {"kind": "device", "version": None, "task": None, "detail": detail}


def _build_task_wait_response(stop: LineageStoppingTask) -> WaitingFor:
    reason = f"version {stop.version} of task {stop.task} is held by its gate"
    if stop.standing != TaskStanding.HELD:
        reason = (
            f"task {stop.task} was {stop.standing}"
            if stop.standing == "rejected"
            else f"task {stop.task} failed"
        )
    settled_by = "It is being learned again." if stop.again else SETTLED_BY
    detail = f"This job waits, since {reason}. {settled_by}"
    return {"kind": stop.standing, "version": stop.version, "task": stop.task, "detail": detail}
