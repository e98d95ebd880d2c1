"""Claims of jobs from the jobs table: take a job, keep the claim alive, and end it in every way.

The jobs table is the queue, and each claim is one short transaction. A job is eligible if it is
queued, not put off, and next in its model: jobs run in the order of their tasks, and wait while a
task stops the lineage (`Task.stops`). Tasks that are learned again (`Job.again`) come before all
others and do not wait for a decision. All of them wait for the base of their model
(`Model.base_job`). A job without a place in the lineage waits for none of these.

A worker takes only jobs that it can run: a job that needs a CUDA device, or was begun on one, waits
for a worker with one (`core.scheduling.eligible`). `core.scheduling.turns` decides which owner is served, and which of
the owner's jobs. All times come from the database's clock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

from sqlalchemy import ColumnElement, Select, and_, exists, select, update
from sqlalchemy.orm import Session

from core.contract.error import JobError
from core.contract.reports.report import BatchCheck
from core.contract.responses.event import StateData
from core.database import job_log
from core.database.jobs import change_job_state
from core.database.session import Database
from core.database.states import LEASED, JobAction, JobState
from core.database.tables import Job, Model, Owner, Task
from core.errors import PerennialError
from core.execution import batch_log
from core.execution.kinds import KINDS, JobOutcome
from core.jobs.fence import JobClaim, lock_claimed_job
from core.lineage import lineage, wording
from core.lineage.coverage import (
    find_missing_rolled_back_or_skipped_tasks,
    list_taught_tasks_with_new_task,
)
from core.lineage.standing import ENDED
from core.scheduling import turns
from core.scheduling.eligible import (
    ANY_DEVICE,
    WorkerResources,
    build_claimable_job_condition,
    build_condition_for_jobs_worker_can_run,
)
from core.trials.rows import fail_running_trial

__all__ = [
    "JobClaim",
    "claim_job",
    "complete_pause_or_cancellation",
    "count_out_of_memory_and_requeue_or_fail_job",
    "fail_claimed_job_or_trial",
    "finish_job_without_version",
    "put_off_claimed_job",
    "reject_job",
    "renew_job_lease",
    "requeue_or_fail_job",
    "take_back_jobs_of_dead_worker",
    "take_back_jobs_with_expired_lease",
]

MAX_STRIKES = 3
"""Number of attempts in a row that may be lost without a new snapshot."""
OUTAGE_PAUSE_S = 5.0
"""Seconds for which a job is put off that was released because of an outage of a service."""
_LOOKS = 5
"""Maximum number of jobs that a claim finds changed between read and lock before it gives up."""
MEMORY_ATTEMPTS = 2
"""Number of attempts that may run out of memory.

The second one shows that the first was no accident.
"""
_LEASED = sorted(str(state) for state in LEASED)
_ANY_QUEUED = select(exists().where(Job.state == str(JobState.QUEUED)))


class _ClaimingWorker(NamedTuple):
    """A worker that claims a job: its name, the seconds of its leases, and its resources."""

    worker: str
    lease_s: float
    offer: WorkerResources


def _choose_job_device(job: Job, offer: WorkerResources) -> str:
    """Return the device (cpu or cuda) on which a worker will run a job."""
    return "cpu" if "cpu" in (job.device, job.resume_on) else offer.device


def _return_query_without_row_locks(query: Select[Job]) -> Select[Job]:
    """Return a claim's query unchanged, because SQLite has only one writer at a time."""
    return query


def _add_postgresql_row_lock(query: Select[Job]) -> Select[Job]:
    """Add a PostgreSQL row lock to a claim's query of jobs.

    Rows that another worker is claiming are skipped, not waited for. PostgreSQL checks a row again
    that changed between the read and the lock, but not other rows. A retry or a held task since
    then may therefore be missed, so `claim_job` checks again under the lock of the model.
    """
    return query.with_for_update(skip_locked=True, key_share=True, of=Job)


_HELD = {"sqlite": _return_query_without_row_locks, "postgresql": _add_postgresql_row_lock}


def claim_job(
    db: Database, worker: str, lease_s: float, offer: WorkerResources = ANY_DEVICE
) -> JobClaim | None:
    """Claim the next eligible job for a worker, by the turn of owners, for `lease_s` seconds.

    Return None if there is none. The claim of a task's job fixes its parent, the present lineage
    head. A job that was begun from another version starts again. Jobs of unknown kinds, and jobs
    that do not fit the offer, are left to other workers. Workers that claim at the same moment do
    not see each other's claims, so an owner may then get one job on each of them.
    """
    # Workers poll often: without a waiting job, this must cost little and lock nothing.
    with db.read() as session:
        if not session.scalar(_ANY_QUEUED):
            return None
    missed: set[str] = set()
    while len(missed) < _LOOKS:
        with db.write() as session:
            now = db.now(session)
            may_run = and_(
                build_claimable_job_condition(), build_condition_for_jobs_worker_can_run(offer)
            )
            job, overtakes = _lock_next_job(session, db.dialect, may_run, missed, now)
            if job is None:
                return None
            model = lineage.lock_model_row(session, job.model_id)
            # a decision was made between read and lock
            if not _is_job_still_eligible(session, job, may_run, now):
                missed.add(job.id)
                continue
            claimed = _record_claim(
                session, model, job, _ClaimingWorker(worker, lease_s, offer), now
            )
            served = update(Owner).where(Owner.id == job.owner_id)
            # last, since it locks the owner's row
            session.execute(served.values(claimed_at=now, overtook=overtakes))
            return claimed
    return None


def _lock_next_job(
    session: Session, dialect: str, may_run: ColumnElement[bool], missed: set[str], now: float
) -> tuple[Job | None, bool]:
    """Lock and return the next job to claim, and True if it overtakes an older one.

    `missed` jobs are excluded.
    """
    may_run = and_(may_run, Job.id.not_in(missed)) if missed else may_run
    priorities = {kind.name: kind.priority for kind in KINDS.values() if kind.able()}
    for owner, next_, overtakes in turns.list_owner_scheduling_turns(
        session, may_run, priorities, now
    ):
        owner_jobs = select(Job).where(
            Job.owner_id == owner, Job.kind.in_(sorted(priorities)), may_run
        )
        # If another worker is just claiming that job, look at the owner's next ones.
        for query in (
            select(Job).where(Job.id == next_, may_run),
            owner_jobs.order_by(Job.id).limit(1),
        ):
            job = session.scalars(_HELD[dialect](query), {"now": now}).one_or_none()
            if job is not None:
                # The other candidate is the owner's oldest job, which overtakes none.
                return job, overtakes and job.id == next_
    return None, False


def _is_job_still_eligible(
    session: Session, job: Job, may_run: ColumnElement[bool], now: float
) -> bool:
    query = select(Job.id).where(Job.id == job.id, may_run)
    return session.scalar(query, {"now": now}) is not None


def _record_claim(
    session: Session, model: Model, job: Job, claimant: _ClaimingWorker, now: float
) -> JobClaim:
    """Record in a job's row that a worker has claimed it, and return the claim."""
    # A worker that outlived its lease holds an older number, so none of its later writes counts.
    model.fence += 1
    decoded = job.archive_key is None
    if job.task_id is not None:
        task = session.get_one(Task, job.task_id)
        decoded = task.train_sha256 is not None
        # Since an earlier attempt, a rollback or a promotion may have moved the lineage.
        if job.parent_version != model.head:
            _set_parent_version_and_drop_old_states(session, model, job, task, now)
    job.attempt += 1
    job.fence, job.worker = model.fence, claimant.worker
    job.lease_until = now + claimant.lease_s
    job.not_before = None
    waited_s = now - job.created_at if job.started_at is None else None
    job.started_at = job.started_at or now
    state = change_job_state(
        session,
        job,
        JobAction.START if decoded else JobAction.VALIDATE,
        now,
        {"attempt": job.attempt},
    )
    session.flush()
    return JobClaim(
        job_id=job.id,
        kind=job.kind,
        model_id=job.model_id,
        task_id=job.task_id,
        task_number=job.task_number,
        fence=model.fence,
        worker=claimant.worker,
        attempt=job.attempt,
        state=state,
        parent_version=job.parent_version,
        snapshot=job.snapshot,
        waited_s=waited_s,
        device=_choose_job_device(job, claimant.offer),
    )


def _set_parent_version_and_drop_old_states(
    session: Session, model: Model, job: Job, task: Task, now: float
) -> None:
    """Store in a claimed job the version that it starts from, so that retries use the same.

    A job that had begun from another version drops its states.
    """
    former_parent, job.parent_version = job.parent_version, model.head
    if former_parent is not None:
        job.snapshot = job.anytime = job.resume_on = None  # the sweep removes their files
        job.strikes = 0
        text = (
            f"The lineage continues from version {model.head} now: "
            f"the job starts again from it, not from version {former_parent}."
        )
        job_log.add_job_log_line(session, job.id, ("warning", text), now)
    tasks = list_taught_tasks_with_new_task(
        lineage.get_lineage_head(session, model).manifest, task.number
    )
    job.warnings = [
        wording.describe_missing_task(model, lacked_task, standing)
        for lacked_task, standing in find_missing_rolled_back_or_skipped_tasks(
            session, model, tasks
        )
    ]
    for text in job.warnings:
        job_log.add_job_log_line(session, job.id, ("warning", text), now)


def renew_job_lease(db: Database, job_id: str, fence: int, lease_s: float) -> JobState | None:
    """Renew a worker's lease on a job, and return the job's state, which shows a requested stop.

    Return None if the lease is lost.
    """
    with db.write() as session:
        # One statement that reads nothing first: each running job does this every few seconds.
        state = session.execute(
            update(Job)
            .where(Job.id == job_id, Job.fence == fence, Job.state.in_(_LEASED))
            .values(lease_until=db.now(session) + lease_s)
            .returning(Job.state)
        ).scalar_one_or_none()
    return None if state is None else JobState(state)


@contextmanager
def _open_claimed_job_transaction(
    db: Database, claim: JobClaim
) -> Iterator[tuple[Session, Job, float]]:
    """Open a transaction on a claimed job: yield the session, the locked job and the database's
    time.

    Raises:
        LeaseLost: the job belongs to another worker by now.
    """
    with db.write() as session:
        job = lock_claimed_job(session, claim)
        yield session, job, db.now(session)


def complete_pause_or_cancellation(db: Database, claim: JobClaim) -> JobState:
    """Complete a job's requested pause or cancellation, after its child process has ended.

    A job whose stop is not wanted any more is released without a strike.

    Raises:
        LeaseLost: the job belongs to another worker by now.
    """
    with _open_claimed_job_transaction(db, claim) as (session, job, now):
        is_stopping = JobState(job.state) in (JobState.PAUSING, JobState.CANCELLING)
        return _apply_action_and_update_lineage(
            session, job, JobAction.STOPPED if is_stopping else JobAction.RELEASE, now
        )


def requeue_or_fail_job(
    db: Database, claim: JobClaim, error: str, *, counts: bool = True
) -> JobState:
    """Queue a job again whose process died, or fail it after the third time.

    Args:
        error: what happened, for a person.
        counts: False for an outage of the database or the store, which the job did not cause; the
            job is then put off for a short time.

    Raises:
        LeaseLost: the job belongs to another worker by now.
    """
    with _open_claimed_job_transaction(db, claim) as (session, job, now):
        if counts:
            return _end_attempt_after_process_death(session, job, now, error)
        state = _apply_action_and_update_lineage(
            session, job, JobAction.REQUEUE, now, {"reason": error}
        )
        # Without a pause, workers would claim the job again and again while the service is out.
        job.not_before = now + OUTAGE_PAUSE_S
        return state


def count_out_of_memory_and_requeue_or_fail_job(
    db: Database, claim: JobClaim, error: str, detail: str
) -> JobState:
    """Queue a job again whose process ran out of memory, or fail it the second time.

    Unlike other lost attempts, this counts even if a snapshot was made since: the job would resume
    from there and end the same way again and again.

    Args:
        error: what happened.
        detail: the same with figures and advice, for a job that fails by it.

    Raises:
        LeaseLost: the job belongs to another worker by now.
    """
    with _open_claimed_job_transaction(db, claim) as (session, job, now):
        job.out_of_memory += 1
        running = JobState(job.state) in (JobState.VALIDATING, JobState.RUNNING)
        if running and job.out_of_memory >= MEMORY_ATTEMPTS:
            return _fail_job_or_trial(
                session, job, now, {"kind": "memory", "code": "job-memory", "detail": detail}
            )
        return _end_attempt_after_process_death(session, job, now, error)


def put_off_claimed_job(db: Database, claim: JobClaim, reason: str, seconds: float) -> JobState:
    """Release a job that cannot run yet, for at least `seconds`; this does not count as a failed
    attempt.

    Raises:
        LeaseLost: the job belongs to another worker by now.
    """
    with _open_claimed_job_transaction(db, claim) as (session, job, now):
        state = _apply_action_and_update_lineage(
            session, job, JobAction.RELEASE, now, {"reason": reason}
        )
        job.not_before = now + seconds
        return state


def finish_job_without_version(db: Database, claim: JobClaim, done: JobOutcome) -> JobState:
    """End a job that makes no version as succeeded, and store its findings.

    Raises:
        LeaseLost: the job belongs to another worker by now.
        WrongState: a stop was requested meanwhile; nothing was changed.
    """
    with _open_claimed_job_transaction(db, claim) as (session, job, now):
        job.report = done.report
        for log_line in done.log_lines:
            job_log.add_job_log_line(session, job.id, log_line, now)
        return change_job_state(session, job, JobAction.FINISH, now)


def fail_claimed_job_or_trial(db: Database, claim: JobClaim, kind: str, error: str) -> JobState:
    """End a claimed job as failed, or only its trial if others remain; it may be retried.

    Args:
        kind: data, code, memory, time, non-finite, weights, export or lost.
        error: what happened, for a person.

    Raises:
        LeaseLost: the job belongs to another worker by now.
    """
    problem: JobError = {"kind": kind, "code": f"job-{kind}", "detail": error}
    with _open_claimed_job_transaction(db, claim) as (session, job, now):
        return _fail_job_or_trial(session, job, now, problem)


def reject_job(db: Database, claim: JobClaim, problem: PerennialError) -> JobState:
    """End a claimed job as rejected, since its batch is unusable.

    The ingest report, if any, is stored in the task, or in the job if it has no task.

    Raises:
        LeaseLost: the job belongs to another worker by now.
    """
    with _open_claimed_job_transaction(db, claim) as (session, job, now):
        report = problem.extra.get("report")
        if report is not None:
            batch_log.add_batch_report_to_job_log(session, job.id, report, now)
        if job.task_id is None:
            findings = {} if report is None else {"checked": report["checked"], "report": report}
            job.report = cast(BatchCheck, {**(job.report or {}), "valid": False, **findings})
        elif report is not None:
            session.get_one(Task, job.task_id).report = report
        job.error = {"kind": "data", "code": problem.code, "detail": problem.detail}
        return _apply_action_and_update_lineage(
            session, job, JobAction.REJECT, now, {"error": job.error}
        )


def take_back_jobs_with_expired_lease(db: Database, before: float | None = None) -> list[str]:
    """Take jobs back from workers whose lease ran out before a time of the database's clock.

    Return the jobs' ids. Safe in several workers at once: a job whose row another transaction has
    locked is skipped.

    Args:
        before: seconds since 1970; None for now.
    """
    ids = []
    with db.write() as session:
        now = db.now(session)
        # The reaper's time is older: a database that hangs in between must not turn live leases
        # into expired ones.
        limit = now if before is None else before
        query = select(Job).where(Job.state.in_(_LEASED), Job.lease_until < limit).order_by(Job.id)
        for job in session.execute(
            # Whoever has a lock on a job is just changing it; the next round looks at it again.
            query.with_for_update(skip_locked=True, key_share=True)
        ).scalars():
            _end_attempt_after_process_death(
                session, job, now, f"The worker {job.worker} stopped reporting."
            )
            ids.append(job.id)
    return ids


def take_back_jobs_of_dead_worker(db: Database, worker: str) -> list[str]:
    """Take back the jobs of a worker that is certainly dead, without waiting for its lease.

    Return the jobs' ids. The caller has made sure that the worker is dead and that no other worker
    has its name.
    """
    with db.write() as session:
        now = db.now(session)
        query = select(Job).where(Job.state.in_(_LEASED), Job.worker == worker).order_by(Job.id)
        # Wait for a locked row: nobody looks for this worker again.
        jobs = session.scalars(query.with_for_update(key_share=True)).all()
        for job in jobs:
            _end_attempt_after_process_death(
                session, job, now, f"The worker {worker} ended without giving the job back."
            )
        return [job.id for job in jobs]


def _end_attempt_after_process_death(
    session: Session, job: Job, now: float, error: str
) -> JobState:
    """End a job's attempt whose process died; it counts as failed unless it stored a snapshot since
    its claim.
    """
    # The fence tells a snapshot of this attempt from the one that it resumed from.
    progressed = job.snapshot is not None and job.snapshot.fence == job.fence
    # A job that progresses is not the cause of its losses, so only losses in a row count.
    job.strikes = 0 if progressed else job.strikes + 1
    # A job whose stop was requested ends as requested, however its attempt ended.
    running = JobState(job.state) in (JobState.VALIDATING, JobState.RUNNING)
    if running and job.strikes >= MAX_STRIKES:
        detail = f"{job.strikes} attempts in a row were lost without progress. The last: {error}"
        return _fail_job_or_trial(
            session, job, now, {"kind": "lost", "code": "job-lost", "detail": detail}
        )
    return _apply_action_and_update_lineage(
        session, job, JobAction.REQUEUE, now, {"reason": error, "strikes": job.strikes}
    )


def _fail_job_or_trial(session: Session, job: Job, now: float, problem: JobError) -> JobState:
    """Fail a job, or only the trial that it is learning if there are other trials to choose from."""
    if fail_running_trial(session, job, problem):
        # Strikes count per trial.
        job.strikes = job.out_of_memory = 0
        reason = f"A trial failed, and the others go on: {problem['detail']}"
        return _apply_action_and_update_lineage(
            session, job, JobAction.REQUEUE, now, {"reason": reason}
        )
    job.error = problem
    return _apply_action_and_update_lineage(session, job, JobAction.FAIL, now, {"error": problem})


def _apply_action_and_update_lineage(
    session: Session, job: Job, action: JobAction, now: float, data: StateData | None = None
) -> JobState:
    """Change a job's state by an action, and update the model's lineage if the job ended without a
    version.
    """
    state = change_job_state(session, job, action, now, data)
    if state in ENDED:
        lineage.update_standing_and_rejudge_held_versions(session, job, now)
    return state
