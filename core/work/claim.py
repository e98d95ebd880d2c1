"""Claiming jobs from the jobs table, keeping a claim alive, and giving it back in every way.

The jobs table is the queue (one short transaction per claim). A job is eligible when it is queued, not put off, and
it is its turn in its model: jobs run in the order of their tasks, and wait while a task stops the line (`Task.stops`).
Tasks that are learned again (`Job.again`) come before all others and wait for no settling. All of them wait
for the base of their model (`Model.base_job`). A job without a place in the line waits for none of that.
A worker takes only jobs that it can run: one that asks for a CUDA device, or was begun on one, waits for a worker with
one (`fits`).
Whose job is claimed, and which of his, `core.work.turns` decides. All times come from the database's clock.
"""

from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, Select, and_, exists, or_, select, update
from sqlalchemy.orm import Session, aliased

from core.db import job_log
from core.db.jobs import is_unfinished, move
from core.db.session import Database
from core.db.states import LEASED, Action, State
from core.db.tables import Job, Model, Owner, Task
from core.errors import PerennialError
from core.line import line, words
from core.line.coverage import lacked, with_task
from core.line.standing import ENDED
from core.protocol.answers.event import StateData
from core.protocol.error import JobError
from core.protocol.report import BatchCheck
from core.work import batch_lines, turns
from core.work.fence import Claim, hold
from core.work.kinds import KINDS, Done

__all__ = [
    "ANY_DEVICE",
    "Claim",
    "Offer",
    "awaits_base",
    "claim",
    "eligible",
    "fail",
    "finish",
    "fits",
    "heartbeat",
    "lack_memory",
    "line_stopped",
    "put_off",
    "reap",
    "reap_worker",
    "reject",
    "requeue",
    "stopped",
]

MAX_STRIKES = 3
"""Attempts that may be lost in a row without a new snapshot."""
OUTAGE_PAUSE_S = 5.0
"""A job given back because a service was out is put off for so long."""
_LOOKS = 5
"""A claim that finds so many jobs decided upon between read and lock leaves it to the next one."""
MEMORY_ATTEMPTS = 2
"""Attempts that may run out of memory: the second one shows that the first was no accident."""
_LEASED = sorted(str(state) for state in LEASED)
_ANY_QUEUED = select(exists().where(Job.state == str(State.QUEUED)))


class Offer(NamedTuple):
    """Resources that a worker offers: `device` cpu, cuda or auto (either), and the number of CUDA devices."""

    device: str = "auto"
    gpus: int = 1


ANY_DEVICE = Offer()


def fits(offer: Offer) -> ColumnElement[bool]:
    """The condition on `Job` under which a worker with that offer can run it. Every worker has a CPU."""
    if offer.device == "cpu":
        # A snapshot made on a GPU goes on there: on a CPU it would become another version.
        return and_(Job.device != "cuda", or_(Job.resume_on.is_(None), Job.resume_on == "cpu"))
    return or_(Job.gpus <= offer.gpus, Job.device == "cpu")


def _run_on(job: Job, offer: Offer) -> str:
    """The device of a job that fits."""
    return "cpu" if "cpu" in (job.device, job.resume_on) else offer.device


def eligible(now: float) -> ColumnElement[bool]:
    """The condition on `Job` under which a worker may claim it at `now`."""
    other = aliased(Job)
    earlier = or_(
        and_(other.again == Job.again, other.task_number < Job.task_number),
        and_(other.again, ~Job.again),
        other.state.in_(_LEASED),
    )
    its_turn = and_(
        or_(Job.again, ~line_stopped(Job.model_id)),  # first: SQLite asks in this order, and it costs less
        ~awaits_base(Job.model_id),
        ~exists().where(
            other.model_id == Job.model_id,
            other.id != Job.id,
            other.place.is_not(None),
            is_unfinished(other.state),
            earlier,
        ),
    )
    return and_(
        Job.state == str(State.QUEUED),
        or_(Job.not_before.is_(None), Job.not_before <= now),
        or_(Job.place.is_(None), its_turn),
    )


def line_stopped(model_id: Any) -> ColumnElement[bool]:
    """Whether a task of a model waits for a person, and later ones for it. `model_id`: a column."""
    return exists().where(Task.model_id == model_id, Task.stops)


def awaits_base(model_id: Any) -> ColumnElement[bool]:
    """Whether a model has no version 0 yet. `model_id`: a column."""
    own = aliased(Model)
    return exists().where(own.id == model_id, own.base_job.is_not(None))


def _held_sqlite(query: Select[Job]) -> Select[Job]:
    """SQLite: the transaction began IMMEDIATE, so no other worker reads or writes beside it."""
    return query


def _held_postgresql(query: Select[Job]) -> Select[Job]:
    """PostgreSQL: rows that another worker is claiming are passed over, not waited for.

    A row that changed between the read and the lock is tested again by the database; other rows are not, so a
    retry or a task that was held since may be missed. `claim` therefore looks again under the model's lock.
    """
    return query.with_for_update(skip_locked=True, key_share=True, of=Job)


_HELD = {"sqlite": _held_sqlite, "postgresql": _held_postgresql}


def claim(db: Database, worker: str, lease_s: float, offer: Offer = ANY_DEVICE) -> Claim | None:
    """Claim the next eligible job of the owner whose turn it is for `lease_s` seconds; None when there is none.

    A claim of a task's job fixes its parent: the line head of now. A job that was begun from another one starts anew.
    Jobs of kinds that this code does not know are left to others, and those that do not fit the offer.
    Workers that claim at the same moment do not see each other's claims: an owner may then get one for each of them.
    """
    # Workers ask again and again: where no job waits, that shall cost little and lock nothing.
    with db.read() as session:
        if not session.scalar(_ANY_QUEUED):
            return None
    missed: set[str] = set()
    while len(missed) < _LOOKS:
        with db.write() as session:
            now = db.now(session)
            may_run = and_(eligible(now), fits(offer))
            job, overtakes = _next(session, db.dialect, may_run, missed)
            if job is None:
                return None
            model = line.locked(session, job.model_id)
            if not _may_still_run(session, job, may_run):  # something was decided between read and lock
                missed.add(job.id)
                continue
            found = _taken(session, model, job, worker, now, lease_s, offer)
            served = update(Owner).where(Owner.id == job.owner_id)
            session.execute(served.values(claimed_at=now, overtook=overtakes))  # last: it locks his row
            return found
    return None


def _next(
    session: Session, dialect: str, may_run: ColumnElement[bool], missed: set[str]
) -> tuple[Job | None, bool]:
    """The job to claim, its row held, and whether it overtakes an older one; none of those that were `missed`."""
    may_run = and_(may_run, Job.id.not_in(missed)) if missed else may_run
    priorities = {kind.name: kind.priority for kind in KINDS.values() if kind.able()}
    for owner, next_, overtakes in turns.in_order(session, may_run, priorities):
        his = select(Job).where(Job.owner_id == owner, Job.kind.in_(sorted(priorities)), may_run)
        # His next ones are looked at where another worker is just claiming that job.
        for query in (select(Job).where(Job.id == next_, may_run), his.order_by(Job.id).limit(1)):
            job = session.scalars(_HELD[dialect](query)).one_or_none()
            if job is not None:
                return job, overtakes and job.id == next_
    return None, False


def _may_still_run(session: Session, job: Job, may_run: ColumnElement[bool]) -> bool:
    return session.scalar(select(Job.id).where(Job.id == job.id, may_run)) is not None


def _taken(
    session: Session, model: Model, job: Job, worker: str, now: float, lease_s: float, offer: Offer
) -> Claim:
    model.fence += 1
    decoded = job.archive_key is None
    if job.task_id is not None:
        task = session.get_one(Task, job.task_id)
        decoded = task.train_sha256 is not None
        if job.parent_version != model.head:
            _begin_from(session, model, job, task, now)
    job.attempt += 1
    job.fence, job.worker, job.lease_until = model.fence, worker, now + lease_s
    job.not_before = None
    waited_s = now - job.created_at if job.started_at is None else None
    job.started_at = job.started_at or now
    state = move(
        session,
        job,
        Action.START if decoded else Action.VALIDATE,
        now,
        {"attempt": job.attempt},
    )
    session.flush()
    return Claim(
        job_id=job.id,
        kind=job.kind,
        model_id=job.model_id,
        task_id=job.task_id,
        task_number=job.task_number,
        fence=model.fence,
        worker=worker,
        attempt=job.attempt,
        state=state,
        parent_version=job.parent_version,
        snapshot=job.snapshot,
        waited_s=waited_s,
        device=_run_on(job, offer),
    )


def _begin_from(session: Session, model: Model, job: Job, task: Task, now: float) -> None:
    """Fix the version that a job starts from; one that had begun elsewhere leaves its states behind."""
    before, job.parent_version = job.parent_version, model.head
    if before is not None:
        job.snapshot = job.anytime = job.resume_on = None  # the sweep removes their files
        job.strikes = 0
        text = (
            f"The line goes on from version {model.head} now: "
            f"the job starts anew from it, not from version {before}."
        )
        job_log.add(session, job.id, ("warning", text), now)
    tasks = with_task(line.head_of(session, model).manifest, task.number)
    job.warnings = [
        words.missing(model, lacked_task, standing) for lacked_task, standing in lacked(session, model, tasks)
    ]
    for text in job.warnings:
        job_log.add(session, job.id, ("warning", text), now)


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
        return _move(session, job, Action.STOPPED if wanted else Action.RELEASE, db.now(session))


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
        state = _move(session, job, Action.REQUEUE, now, {"reason": error})
        job.not_before = now + OUTAGE_PAUSE_S
        return state


def lack_memory(db: Database, claim: Claim, error: str, detail: str) -> State:
    """An attempt ran out of memory: queue the job again, or fail it at the second time.

    Unlike other lost attempts it counts though a snapshot was made since: the job would go on from there to the same
    end, again and again.

    Args:
        error: what happened.
        detail: the same with figures and advice, for a job that ends by it.

    Raises:
        LeaseLost: another worker owns the job by now.
    """
    with db.write() as session:
        job = hold(session, claim)
        now = db.now(session)
        job.out_of_memory += 1
        running = State(job.state) in (State.VALIDATING, State.RUNNING)
        if running and job.out_of_memory >= MEMORY_ATTEMPTS:
            job.error = {"kind": "memory", "code": "job-memory", "detail": detail}
            return _move(session, job, Action.FAIL, now, {"error": job.error})
        return _lost(session, job, now, error)


def put_off(db: Database, claim: Claim, reason: str, seconds: float) -> State:
    """Give a job back whose turn it is not, for so many seconds at least; no strike.

    Raises:
        LeaseLost: another worker owns the job by now.
    """
    with db.write() as session:
        job = hold(session, claim)
        now = db.now(session)
        state = _move(session, job, Action.RELEASE, now, {"reason": reason})
        job.not_before = now + seconds
        return state


def finish(db: Database, claim: Claim, done: Done) -> State:
    """End a job that makes no version, and keep what it found.

    Raises:
        LeaseLost: another worker owns the job by now.
        WrongState: a stop was asked for meanwhile; nothing was changed.
    """
    with db.write() as session:
        job = hold(session, claim)
        job.report = done.report
        now = db.now(session)
        for said in done.lines:
            job_log.add(session, job.id, said, now)
        return move(session, job, Action.FINISH, now)


def fail(db: Database, claim: Claim, kind: str, error: str) -> State:
    """End a job as failed: `kind` is data, code, memory, time, non-finite, weights, export or lost. It may
    be retried.

    Raises:
        LeaseLost: another worker owns the job by now.
    """
    problem: JobError = {"kind": kind, "code": f"job-{kind}", "detail": error}
    return _end(db, claim, Action.FAIL, problem)


def reject(db: Database, claim: Claim, problem: PerennialError) -> State:
    """End a job as rejected: its batch is unusable; the ingest report, if any, goes to the task, or to the job's own.

    Raises:
        LeaseLost: another worker owns the job by now.
    """
    with db.write() as session:
        job = hold(session, claim)
        report = problem.extra.get("report")
        if report is not None:
            batch_lines.tell(session, job.id, report, db.now(session))
        if job.task_id is None:
            found = {} if report is None else {"checked": report["checked"], "report": report}
            job.report = cast(BatchCheck, {**(job.report or {}), "valid": False, **found})
        elif report is not None:
            session.get_one(Task, job.task_id).report = report
        job.error = {"kind": "data", "code": problem.code, "detail": problem.detail}
        return _move(session, job, Action.REJECT, db.now(session), {"error": job.error})


def reap(db: Database, before: float | None = None) -> list[str]:
    """Take jobs from workers whose lease ran out before a time of the database's clock (None: now); their ids.

    Safe in every worker at once: a job whose row another transaction holds is passed over.
    """
    ids = []
    with db.write() as session:
        now = db.now(session)
        limit = now if before is None else before
        query = select(Job).where(Job.state.in_(_LEASED), Job.lease_until < limit).order_by(Job.id)
        for job in session.execute(query.with_for_update(skip_locked=True, key_share=True)).scalars():
            _lost(session, job, now, f"The worker {job.worker} stopped reporting.")
            ids.append(job.id)
    return ids


def reap_worker(db: Database, worker: str) -> list[str]:
    """Take the jobs of a worker that is certainly dead, without waiting for its lease; their ids.

    Its name must be its own alone. The caller has made sure of both.
    """
    with db.write() as session:
        now = db.now(session)
        query = select(Job).where(Job.state.in_(_LEASED), Job.worker == worker).order_by(Job.id)
        # A held row is waited for: nobody looks for this worker again.
        jobs = session.scalars(query.with_for_update(key_share=True)).all()
        for job in jobs:
            _lost(session, job, now, f"The worker {worker} ended without giving the job back.")
        return [job.id for job in jobs]


def _lost(session: Session, job: Job, now: float, error: str) -> State:
    """End an attempt that died: a strike, unless it committed a snapshot since its claim."""
    progressed = job.snapshot is not None and job.snapshot.fence == job.fence
    job.strikes = 0 if progressed else job.strikes + 1
    running = State(job.state) in (State.VALIDATING, State.RUNNING)
    if running and job.strikes >= MAX_STRIKES:
        detail = f"{job.strikes} attempts in a row were lost without progress. The last: {error}"
        job.error = {"kind": "lost", "code": "job-lost", "detail": detail}
        return _move(session, job, Action.FAIL, now, {"error": job.error})
    return _move(session, job, Action.REQUEUE, now, {"reason": error, "strikes": job.strikes})


def _end(db: Database, claim: Claim, action: Action, problem: JobError) -> State:
    with db.write() as session:
        job = hold(session, claim)
        job.error = problem
        return _move(session, job, action, db.now(session), {"error": problem})


def _move(session: Session, job: Job, action: Action, now: float, data: StateData | None = None) -> State:
    """`core.db.jobs.move`, and what the end of a job without a version means for the line of its model."""
    state = move(session, job, action, now, data)
    if state in ENDED:
        line.ended(session, job, now)
    return state
