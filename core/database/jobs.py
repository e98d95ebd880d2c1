"""The only way to change a job's state: table, revision, times and event together.

The caller holds the lock on the job's row (`lock_job`), so decisions rest on the present state.
This module also defines what a state means for the lease: a job that no worker owns has no fence,
so a worker that lost it cannot write any more.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, delete, insert, select
from sqlalchemy.orm import Session

from core.contract.responses.event import StateData
from core.database import job_log, owner_events
from core.database.states import (
    LEASED,
    TERMINAL,
    UNFINISHED,
    JobAction,
    JobState,
    find_next_job_state,
)
from core.database.tables import Job, StoredJobEvent, TrialFile
from core.errors import BatchHeldForFindings


def build_unfinished_job_condition(state: Any) -> ColumnElement[bool]:
    """Return an SQL condition that a column of job states is unfinished, so written that
    `ix_jobs_unfinished` is used.
    """
    states = sorted(str(one) for one in UNFINISHED)
    return state.in_(bindparam("unfinished", states, expanding=True, literal_execute=True))  # type: ignore[no-any-return]


def is_job_rejected_for_findings(job: Job) -> bool:
    """Return True if a job was rejected because of findings in its batch that its recipe does not
    accept.

    The batch is retained, and a retry may learn it.
    """
    return (
        job.state == JobState.REJECTED
        and job.error is not None
        and job.error["code"] == BatchHeldForFindings.code
    )


def lock_job(session: Session, job_id: str) -> Job | None:
    """Read a job, and lock its database row until the transaction ends.

    PostgreSQL locks the row; on SQLite, a writing transaction is alone anyway. Jobs are always
    locked without their key (`key_share`), to avoid a deadlock: one transaction holds the model's
    row and writes a reference to the job, while another holds the job and waits for the model.
    """
    query = select(Job).where(Job.id == job_id).with_for_update(key_share=True)
    return session.execute(query.execution_options(populate_existing=True)).scalar_one_or_none()


def change_job_state(
    session: Session, job: Job, action: JobAction, now: float, data: StateData | None = None
) -> JobState:
    """Apply `action` to a locked job, record the event and its log line, and return the job's new
    state.

    If the state does not change, nothing is written. The log line is written first, because readers
    of a job's events stop at the event that ends it.

    Args:
        data: added to the event.

    Raises:
        WrongState: the action is not allowed in the job's state.
    """
    former_state = JobState(job.state)
    state = find_next_job_state(former_state, action)
    if state == former_state:
        return state
    job.state = str(state)
    job.revision += 1
    if state not in LEASED:
        job.fence = job.worker = job.lease_until = None
    if state in TERMINAL:
        job.finished_at = now
        job.choose_until = None
        if job.choose is not None:
            # Results of trials are stored until then; the sweep deletes their blobs.
            session.execute(delete(TrialFile).where(TrialFile.job_id == job.id))
    # `rung_at` too: otherwise, the bell of an earlier attempt would delay the next one.
    elif state == JobState.QUEUED:
        job.finished_at = job.rung_at = None
    log_line = job_log.build_job_state_log_line(job, former_state, action, data or {})
    if log_line is not None:
        job_log.add_job_log_line(session, job.id, log_line, now)
    _record_job_state_event(session, job, data or {}, now)
    return state


def record_job_creation(
    session: Session,
    job: Job,
    now: float,
    data: StateData | None = None,
    lines: Sequence[job_log.Line] = (),
) -> None:
    """Record the first event and the first log lines of a new job.

    Args:
        data: added to the event.
    """
    first_event: StateData = {**(data or {}), "state": job.state}
    rows = [
        ("state", first_event),
        *(("log", job_log.build_job_log_event_data(log_line)) for log_line in lines),
    ]
    session.execute(
        insert(StoredJobEvent),
        [
            {"job_id": job.id, "type": kind, "data": event_data, "at": now}
            for kind, event_data in rows
        ],
    )
    owner_events.collect_owner_and_webhook_events_of_job(session, job, data or {}, now)


def _record_job_state_event(session: Session, job: Job, data: StateData, now: float) -> None:
    """Record a job's new state among the job's events and those of its owner."""
    session.add(
        StoredJobEvent(job_id=job.id, type="state", data={**data, "state": job.state}, at=now)
    )
    owner_events.collect_owner_and_webhook_events_of_job(session, job, data, now)
