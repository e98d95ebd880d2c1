"""Progress of a running job: events of its process become rows, under the fence.

The worker collects events and writes a batch at most once a second, so a busy job costs the
database one short transaction a second. The newest progress is also stored in the job's row, where
polling reads it.

The running time of a job is the sum over its attempts since it last ended, without pauses. An
attempt cannot last longer than a job may run, since its worker ends it by a monotonic clock. A
longer or negative period shows that the database's clock was set forward or back, or that the
service was off; it is not counted.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, TypedDict, cast

from pydantic import JsonValue
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from core.contract.jobs.job_event import (
    AliveEvent,
    DataReportEvent,
    JobEvent,
    PhaseEvent,
    ProgressEvent,
    RecordedEvent,
)
from core.contract.jobs.progress import JobProgress
from core.contract.reports.data_report import DataReport
from core.database import job_log
from core.database.session import Database
from core.database.states import LEASED, TERMINAL
from core.database.tables import Job, StoredJobEvent, Task
from core.execution import job_completion
from core.jobs.fence import JobClaim, lock_claimed_job

_SMOOTHING = 0.5
"""Weight of the newest span in `images_per_s`."""
EPOCH_LINES = 20
"""Most finished epochs that the log reports."""
SIGN_S = 4.0
"""Seconds without news after which a sign of life updates the progress of a job."""
_FIELDS = ("phase", "epoch", "step", "total_steps", "images", "loss")
_OF_THE_JOB = ("done", "costs", "expected", "is_measured", "heard_at", "fence")
"""Fields that survive a change of phase."""


class _EventRowColumns(TypedDict):
    """Columns of an event's row that differ between the events of one insert."""

    type: str
    data: Any


def store_job_process_events(db: Database, claim: JobClaim, events: Sequence[JobEvent]) -> None:
    """Store a batch of events (phase, progress, metric, log) that a job process has sent.

    Other kinds are left out, since the worker acts on them itself; a sign of life only updates the
    progress. `images_per_s`, `eta_s` and the figures of the whole job are computed here, by the
    database's clock.

    Raises:
        LeaseLost: the claim is no longer the job's; nothing was written.
    """
    recorded_events = [event for event in events if isinstance(event, RecordedEvent | AliveEvent)]
    if not recorded_events:
        return
    with db.write() as session:
        job = lock_claimed_job(session, claim)
        now = db.now(session)
        before = newest = JobProgress.from_json(job.progress)
        rows: list[_EventRowColumns | ProgressEvent] = []
        progress_data: dict[str, Any] | None = None
        for event in recorded_events:
            if isinstance(event, AliveEvent):
                continue
            if isinstance(event, DataReportEvent):
                _store_findings_in_data_report(session, claim, event)
                continue
            # A loss that diverges must still be reported.
            content = _event_to_finite_json(event)
            if isinstance(event, PhaseEvent | ProgressEvent):
                newest = _update_progress_by_event(newest, type(event).from_json(content))
                progress_data = content = newest.model_dump(
                    include=set(_FIELDS), exclude_unset=True
                )
                rows.append({"type": "progress", "data": content})
            else:
                rows.append({"type": event.event, "data": content})
            if isinstance(event, ProgressEvent) and _is_epoch_logged(event):
                rows.append(event)
        if newest is not before:
            newest = _add_speed_and_time_left(before, newest, now)
        if newest.phase is not None and (rows or _is_heartbeat_write_due(before, now)):
            newest = _add_time_estimates_to_progress(session, job, claim, before, newest, now)
            if progress_data is None and newest.done != before.done:
                progress_data = {"phase": newest.phase}
                rows.append({"type": "progress", "data": progress_data})
            if progress_data is not None and newest.done is not None:
                # In place, because `rows` contains the same dictionary.
                progress_data |= {"done": newest.done, "left_s": newest.left_s}
        if newest is not before:
            job.progress = newest.to_json()
            # Cached responses about the job are keyed by it.
            job.revision += 1
        # The speed is that of training, even if another phase has begun already.
        speed = newest.images_per_s or before.images_per_s
        event_rows = [
            _build_log_event_row(_format_epoch_line(row, speed))
            if isinstance(row, ProgressEvent)
            else row
            for row in rows
        ]
        if event_rows:
            # One statement for all: the ORM would ask for the id of each.
            session.execute(
                insert(StoredJobEvent), [{**row, "job_id": job.id, "at": now} for row in event_rows]
            )


def _is_heartbeat_write_due(before: JobProgress, now: float) -> bool:
    """Return True if no progress of the job was stored for `SIGN_S` seconds."""
    return before.heard_at is None or now - before.heard_at >= SIGN_S


def _add_time_estimates_to_progress(
    session: Session,
    job: Job,
    claim: JobClaim,
    before: JobProgress,
    newest: JobProgress,
    now: float,
) -> JobProgress:
    """Add phase costs, finished share and time left to a job's newest progress."""
    newest = job_completion.add_elapsed_time_to_current_phase_cost(before, newest, claim.fence, now)
    if newest.expected is None or newest.phase not in newest.expected:
        assert newest.phase is not None
        expected, is_measured = job_completion.estimate_job_phase_seconds(
            session, job, newest.phase
        )
        newest = newest.model_copy(update={"expected": expected, "is_measured": is_measured})
    return job_completion.add_share_done_and_time_left(before, newest)


def _store_findings_in_data_report(
    session: Session, claim: JobClaim, event: DataReportEvent
) -> None:
    """Store a job's findings about images of its batch in the task's data report."""
    # Locked and read again: a person may accept a finding in the same report meanwhile.
    task = session.get_one(Task, claim.task_id, with_for_update=True, populate_existing=True)
    task.report = {
        **task.report,
        "data": cast(
            DataReport, replace_non_finite_in_json(event.dump_without_event_kind()["report"])
        ),
    }


def _is_epoch_logged(event: ProgressEvent) -> bool:
    """Return True if the log reports this epoch: every n-th one, and the last."""
    epoch, epochs = event.epoch, event.epochs
    # The remainder tells the end of an epoch, since all have the same number of steps.
    if not epoch or not epochs or event.step * epochs % event.total_steps:
        return False
    return epoch == epochs or epoch % math.ceil(epochs / EPOCH_LINES) == 0


def _build_log_event_row(log_line: job_log.Line) -> _EventRowColumns:
    return {"type": "log", "data": job_log.build_job_log_event_data(log_line)}


def _format_epoch_line(event: ProgressEvent, speed: float | None) -> job_log.Line:
    phrases = [f"Epoch {event.epoch:,} of {event.epochs:,}"]
    if event.loss is not None:
        phrases.append(f"loss {event.loss:.4g}")
    if speed:
        phrases.append(f"{speed:,.0f} images/s")
    return "info", ", ".join(phrases) + "."


def _update_progress_by_event(
    progress: JobProgress, event: PhaseEvent | ProgressEvent
) -> JobProgress:
    """Update a job's progress by a phase or progress event; a new phase restarts the counts."""
    if isinstance(event, PhaseEvent) or event.phase != progress.phase:
        carried_fields = {
            name: value
            for name, value in progress.get_explicitly_set_field_values().items()
            if name in _OF_THE_JOB
        }
        progress = JobProgress(**carried_fields)
    changed = {
        name: value
        for name, value in event.get_explicitly_set_field_values().items()
        if name in _FIELDS
    }
    return progress.model_copy(update=changed)


def _add_speed_and_time_left(before: JobProgress, newest: JobProgress, now: float) -> JobProgress:
    """Add images per second and the time left to a job's progress."""
    images, step, total = newest.images, newest.step, newest.total_steps
    speed = newest.images_per_s
    since = 0.0 if before.at is None else now - before.at
    if before.phase == newest.phase and images and before.images is not None and since > 0:
        gained = images - before.images
        # An attempt that resumes from a snapshot begins below what was reported last.
        if gained >= 0:
            span = gained / since
            speed = span if speed is None else _SMOOTHING * span + (1 - _SMOOTHING) * speed
    seconds_left = None
    if speed and images and step and total:
        seconds_left = round(max(0, total - step) * (images / step) / speed, 1)
    rounded_speed = None if speed is None else round(speed, 1)
    return newest.model_copy(
        update={"at": now, "images_per_s": rounded_speed, "eta_s": seconds_left}
    )


def _event_to_finite_json(event: JobEvent) -> JsonValue:
    """Convert an event to JSON values, with None for NaN and infinities."""
    content = event.dump_without_event_kind()
    try:
        # The encoder is written in C: a version of many tasks reports hundreds of metrics.
        json.dumps(content, allow_nan=False)
    except ValueError:
        return replace_non_finite_in_json(content)
    return content


def replace_non_finite_in_json(value: JsonValue) -> JsonValue:
    """Replace NaN and infinities in a JSON value by None, since JSON cannot express them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: replace_non_finite_in_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [replace_non_finite_in_json(item) for item in value]
    return value


SLACK_S = 3600.0
"""Seconds that an attempt may exceed the job's limit, for work before and after its process."""
_LEASED, _TERMINAL = (frozenset(str(state) for state in states) for states in (LEASED, TERMINAL))


def count_seconds_job_was_claimed(
    session: Session, job_id: str, now: float, most_s: float
) -> float:
    """Count the seconds in which workers held a job, from the times of its events.

    Time before the job last ended is not counted.

    Args:
        now: seconds since 1970 by the database's clock.
        most_s: seconds that the job may run.
    """

    def compute_seconds_or_zero_if_implausible(end: float, begin: float) -> float:
        return end - begin if 0 <= end - begin <= most_s + SLACK_S else 0.0

    query = select(StoredJobEvent.data["state"].as_string(), StoredJobEvent.at)
    total, since = 0.0, None
    for state, at in session.execute(
        # Ordered by id and not by time, since the clock may have been set back in between.
        query.where(StoredJobEvent.job_id == job_id, StoredJobEvent.type == "state").order_by(
            StoredJobEvent.id
        )
    ):
        if since is not None:
            total += compute_seconds_or_zero_if_implausible(at, since)
        since = at if state in _LEASED else None
        # A job that is retried gets the whole limit again.
        if state in _TERMINAL:
            total = 0.0
    return total + (
        compute_seconds_or_zero_if_implausible(now, since) if since is not None else 0.0
    )
