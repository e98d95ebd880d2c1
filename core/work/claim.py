"""Claiming jobs from the jobs table, keeping a claim alive, and giving it back in every way.

The jobs table is the queue (one short transaction per claim). A job is eligible when it is queued, not
put off, and no earlier job of its model is unfinished: jobs of one model run strictly in order. All
times come from the database's clock.
"""

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, or_, select, update
from sqlalchemy.orm import Session, aliased

from core.db.jobs import is_unfinished, move
from core.db.session import Database
from core.db.states import LEASED, Action, State
from core.db.tables import Alias, Job, Model, Task
from core.errors import PerennialError
from core.work.fence import Claim, hold

__all__ = [
    "Claim",
    "claim",
    "eligible",
    "fail",
    "heartbeat",
    "reap",
    "reject",
    "requeue",
    "stopped",
]

MAX_STRIKES = 3
"""Attempts that may be lost in a row without a new snapshot."""
OUTAGE_PAUSE_S = 5.0
"""A job given back because a service was out is put off for so long."""
_LEASED = sorted(str(state) for state in LEASED)


def eligible(now: float) -> ColumnElement[bool]:
    """The condition on `Job` under which a worker may claim it at `now`."""
    earlier = aliased(Job)
    return and_(
        Job.state == str(State.QUEUED),
        or_(Job.not_before.is_(None), Job.not_before <= now),
        ~exists().where(
            earlier.model_id == Job.model_id,
            earlier.place < Job.place,
            is_unfinished(earlier.state),
        ),
    )


def _next_sqlite(now: float) -> Select[Job]:
    """SQLite: the transaction began IMMEDIATE, so no other worker reads or writes beside it."""
    return select(Job).where(eligible(now)).order_by(Job.created_at, Job.id).limit(1)


def _next_postgresql(now: float) -> Select[Job]:
    """PostgreSQL: rows that another worker is claiming are passed over, not waited for.

    A row that changed between the read and the lock is tested again by the database. A stale read of
    an earlier job can only show it unfinished when it no longer is, never the reverse: a retry takes a
    new place at the end of the line.
    """
    return _next_sqlite(now).with_for_update(skip_locked=True, of=Job)


_NEXT = {"sqlite": _next_sqlite, "postgresql": _next_postgresql}


def claim(db: Database, worker: str, lease_s: float) -> Claim | None:
    """Claim the oldest eligible job for `lease_s` seconds; None when there is none.

    The first claim of a job fixes its parent version: the one that `production` names now.
    """
    with db.write() as session:
        now = db.now(session)
        job = session.execute(_NEXT[db.dialect](now)).scalar_one_or_none()
        if job is None:
            return None
        fence = session.execute(
            update(Model).where(Model.id == job.model_id).values(fence=Model.fence + 1).returning(Model.fence)
        ).scalar_one()
        task = session.get_one(Task, job.task_id)
        if job.parent_version is None:
            production = session.get(Alias, (job.model_id, "production"))
            job.parent_version = production.version if production is not None else 0
        job.attempt += 1
        job.fence, job.worker, job.lease_until = fence, worker, now + lease_s
        job.not_before = None
        waited_s = now - job.created_at if job.started_at is None else None
        job.started_at = job.started_at or now
        state = move(
            session,
            job,
            Action.VALIDATE if task.train_sha256 is None else Action.START,
            now,
            {"attempt": job.attempt},
        )
        return Claim(
            job_id=job.id,
            model_id=job.model_id,
            task_id=job.task_id,
            task_number=job.task_number,
            fence=fence,
            worker=worker,
            attempt=job.attempt,
            state=state,
            parent_version=job.parent_version,
            snapshot=job.snapshot,
            waited_s=waited_s,
        )


def heartbeat(db: Database, job_id: str, fence: int, lease_s: float) -> State | None:
    """Renew a lease and return the job's state, in which a wish to stop shows; None: the lease is lost."""
    with db.write() as session:
        state = session.execute(
            update(Job)
            .where(Job.id == job_id, Job.fence == fence, Job.state.in_(_LEASED))
            .values(lease_until=db.now(session) + lease_s)
            .returning(Job.state)
        ).scalar_one_or_none()
    return None if state is None else State(state)


def stopped(db: Database, claim: Claim) -> State:
    """Grant a pause or a cancel: the child is gone. A job that nobody wants stopped is given back, without a strike.

    Raises:
        LeaseLost: another worker owns the job by now.
    """
    with db.write() as session:
        job = hold(session, claim)
        wanted = State(job.state) in (State.PAUSING, State.CANCELLING)
        return move(session, job, Action.STOPPED if wanted else Action.RELEASE, db.now(session))


def requeue(db: Database, claim: Claim, error: str, *, counts: bool = True) -> State:
    """An attempt died: queue the job again, or fail it at the third strike.

    Args:
        error: what happened, for a person.
        counts: False for an outage of the database or the store, which is not the job's doing; the job
            is then put off a little.

    Raises:
        LeaseLost: another worker owns the job by now.
    """
    with db.write() as session:
        job = hold(session, claim)
        now = db.now(session)
        if counts:
            return _lost(session, job, now, error)
        state = move(session, job, Action.REQUEUE, now, {"reason": error})
        job.not_before = now + OUTAGE_PAUSE_S
        return state


def fail(db: Database, claim: Claim, kind: str, error: str) -> State:
    """End a job as failed: `kind` is data, code, memory, non-finite or lost. It may be retried.

    Raises:
        LeaseLost: another worker owns the job by now.
    """
    problem = {"kind": kind, "code": f"job-{kind}", "detail": error}
    return _end(db, claim, Action.FAIL, problem)


def reject(db: Database, claim: Claim, problem: PerennialError) -> State:
    """End a job as rejected: its batch is unusable; the ingest report, if any, goes to the task.

    Raises:
        LeaseLost: another worker owns the job by now.
    """
    with db.write() as session:
        job = hold(session, claim)
        report = problem.extra.get("report")
        if report is not None:
            session.get_one(Task, job.task_id).report = report
        job.error = {"kind": "data", "code": problem.code, "detail": problem.detail}
        return move(session, job, Action.REJECT, db.now(session), {"error": job.error})


def reap(db: Database, before: float | None = None) -> list[str]:
    """Take jobs from workers whose lease ran out before a time of the database's clock (None: now); their ids.

    Safe in every worker at once: a job whose row another transaction holds is passed over.
    """
    ids = []
    with db.write() as session:
        now = db.now(session)
        limit = now if before is None else before
        query = select(Job).where(Job.state.in_(_LEASED), Job.lease_until < limit).order_by(Job.id)
        for job in session.execute(query.with_for_update(skip_locked=True)).scalars():
            _lost(session, job, now, f"The worker {job.worker} stopped reporting.")
            ids.append(job.id)
    return ids


def _lost(session: Session, job: Job, now: float, error: str) -> State:
    """End an attempt that died: a strike, unless it committed a snapshot since its claim."""
    snapshot = job.snapshot or {}
    job.strikes = 0 if snapshot.get("fence") == job.fence else job.strikes + 1
    running = State(job.state) in (State.VALIDATING, State.RUNNING)
    if running and job.strikes >= MAX_STRIKES:
        detail = f"{job.strikes} attempts in a row were lost without progress. The last: {error}"
        job.error = {"kind": "lost", "code": "job-lost", "detail": detail}
        return move(session, job, Action.FAIL, now, {"error": job.error})
    return move(session, job, Action.REQUEUE, now, {"reason": error, "strikes": job.strikes})


def _end(db: Database, claim: Claim, action: Action, problem: dict[str, Any]) -> State:
    with db.write() as session:
        job = hold(session, claim)
        job.error = problem
        return move(session, job, action, db.now(session), {"error": problem})
