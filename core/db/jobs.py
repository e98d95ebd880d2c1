"""The one way to change a job's state: table, revision, times and event together.

Whoever calls holds the job's row (`locked`), so what follows a state is decided on the state that is
there. What a state means for the lease also lives here: a job that no worker owns has no fence, so a
worker that lost it can write nothing more.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, insert, select
from sqlalchemy.orm import Session

from core.db import job_log, owner_events
from core.db.states import LEASED, TERMINAL, UNFINISHED, Action, State, after
from core.db.tables import Event, Job
from core.errors import DataHeld
from core.protocol.answers.event import StateData


def is_unfinished(state: Any) -> ColumnElement[bool]:
    """Whether a column of job states holds an unfinished one, written out: only so can `ix_jobs_unfinished` serve."""
    states = sorted(str(one) for one in UNFINISHED)
    return state.in_(bindparam("unfinished", states, expanding=True, literal_execute=True))  # type: ignore[no-any-return]


def held_for_data(job: Job) -> bool:
    """Whether a job was rejected for what its recipe holds: its batch is kept, and a retry may learn it."""
    return job.state == State.REJECTED and job.error is not None and job.error["code"] == DataHeld.code


def locked(session: Session, job_id: str) -> Job | None:
    """Read a job and hold its row until the transaction ends.

    PostgreSQL locks the row; on SQLite a writing transaction is alone anyway. Here and elsewhere jobs are held without
    their key (`key_share`): whoever holds the model's row, and writes what refers to the job, must not wait
    for somebody who holds the job and waits for the model.
    """
    query = select(Job).where(Job.id == job_id).with_for_update(key_share=True)
    return session.execute(query.execution_options(populate_existing=True)).scalar_one_or_none()


def move(session: Session, job: Job, action: Action, now: float, data: StateData | None = None) -> State:
    """Apply `action` to a held job and record the event and its log line; return the state that follows.

    A state that stays as it is writes nothing. `data` is added to the event. The line comes first: whoever follows
    a job's events stops at the one that ends it.

    Raises:
        WrongState: the action is not allowed in the job's state.
    """
    before = State(job.state)
    state = after(before, action)
    if state == before:
        return state
    job.state = str(state)
    job.revision += 1
    if state not in LEASED:
        job.fence = job.worker = job.lease_until = None
    if state in TERMINAL:
        job.finished_at = now
    elif state == State.QUEUED:
        job.finished_at = job.rung_at = None
    line = job_log.of_change(job, before, action, data or {})
    if line is not None:
        job_log.add(session, job.id, line, now)
    _tell(session, job, data or {}, now)
    return state


def made(
    session: Session,
    job: Job,
    now: float,
    data: StateData | None = None,
    lines: Sequence[job_log.Line] = (),
) -> None:
    """Record the first event of a job, that it was made and waits, and the first lines of its log.

    One statement writes them all. `data` is added to the event.
    """
    told: StateData = {**(data or {}), "state": job.state}
    rows = [("state", told), *(("log", job_log.data_of(line)) for line in lines)]
    session.execute(
        insert(Event), [{"job_id": job.id, "type": kind, "data": of, "at": now} for kind, of in rows]
    )
    owner_events.of_job(session, job, data or {}, now)


def _tell(session: Session, job: Job, data: StateData, now: float) -> None:
    session.add(Event(job_id=job.id, type="state", data={**data, "state": job.state}, at=now))
    owner_events.of_job(session, job, data, now)
