"""Metrics of the queue for monitoring, the same from every API process.

Jobs under way are few and are counted for each call. Finished jobs and versions are many and change
slowly; their counts may be up to `REMEMBER_S` seconds old.
"""

import time
from dataclasses import dataclass

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.states import LEASED, TERMINAL, JobState
from core.database.tables import IntegrityScrubProgress, Job, Model, Task, Version
from core.jobs import workers
from core.retention import damage

REMEMBER_S = 30.0
_UNDER_WAY = sorted(str(state) for state in set(JobState) - TERMINAL)
_FINISHED = sorted(str(state) for state in TERMINAL)


@dataclass(frozen=True)
class QueueAndServiceMetrics:
    """Metrics of the job queue and the service: jobs by state, longest wait, versions, workers and
    damaged objects.

    Attributes:
        jobs: number of jobs by state.
        oldest_s: seconds that the oldest job has waited for a worker; 0 without such a job.
        expired: running jobs whose lease has expired.
        models: number of models.
        versions: number of versions by status.
        scrubbed_objects, scrubbed_bytes: objects and bytes hashed so far by the scrub
        (`core.upkeep.scrub`).
        scrubbed_at: end of the scrub's last complete pass in seconds since 1970; 0 if there was
            none.
        damaged: objects that are marked as damaged now.
        workers: number of reporting workers by (device, state); the state is up or lost.
    """

    jobs: dict[str, int]
    oldest_s: float
    expired: int
    models: int
    versions: dict[str, int]
    scrubbed_objects: int
    scrubbed_bytes: int
    scrubbed_at: float
    damaged: int
    workers: dict[tuple[str, str], int]


@dataclass(frozen=True)
class _CachedJobModelAndVersionCounts:
    """Slowly changing counts for the queue's metrics, and the time in monotonic seconds at which
    they were made.
    """

    at: float
    jobs: dict[str, int]
    models: int
    versions: dict[str, int]


_past: dict[str, _CachedJobModelAndVersionCounts] = {}
"""Latest counts by URL of the database."""


def read_queue_and_service_metrics(db: Database) -> QueueAndServiceMetrics:
    """Count the metrics of the job queue; every state of a job has an entry."""
    with db.read() as session:
        now = db.now(session)
        past = _past.get(db.url)
        # Monotonic, since old counts would stay valid for long after a clock was set back.
        if past is None or time.monotonic() - past.at > REMEMBER_S:
            past = _past[db.url] = _count_finished_jobs_models_versions(session)
        counted = {**past.jobs, **_count_jobs_by_state(session, _UNDER_WAY)}
        stopped = exists().where(Task.model_id == Job.model_id, Task.stops)
        base_is_missing = exists().where(Model.id == Job.model_id, Model.base_job.is_not(None))
        awaits_its_base = base_is_missing & Job.place.is_not(None)
        waits_for_a_person = stopped & ~Job.again & Job.place.is_not(None)
        # Without jobs that wait for a person or for weights: those do not show a lack of workers.
        oldest = session.execute(
            select(func.min(Job.created_at)).where(
                Job.state == str(JobState.QUEUED), ~waits_for_a_person, ~awaits_its_base
            )
        ).scalar_one()
        expired = session.execute(
            select(func.count())
            .select_from(Job)
            .where(Job.state.in_(sorted(str(s) for s in LEASED)), Job.lease_until < now)
        ).scalar_one()
        scrub = session.get(IntegrityScrubProgress, 1)
        damaged = damage.count_damage_marks(session)
        reporting = workers.count_present_workers(session, now)
    return QueueAndServiceMetrics(
        # 0 and not missing without such jobs, so that alerts have a value to compare.
        {str(state): counted.get(str(state), 0) for state in JobState},
        max(0.0, now - oldest) if oldest is not None else 0.0,
        expired,
        past.models,
        {status: past.versions.get(status, 0) for status in ("published", "held")},
        0 if scrub is None else scrub.objects,
        0 if scrub is None else scrub.bytes,
        0.0 if scrub is None else scrub.ended_at or 0.0,
        damaged,
        reporting,
    )


def _count_finished_jobs_models_versions(session: Session) -> _CachedJobModelAndVersionCounts:
    """Count finished jobs by state, models, and versions by status."""
    models = session.execute(
        select(func.count()).select_from(Model).where(Model.deleted_at.is_(None))
    ).scalar_one()
    versions = session.execute(select(Version.status, func.count()).group_by(Version.status))
    counted = {status: count for status, count in versions}
    return _CachedJobModelAndVersionCounts(
        time.monotonic(), _count_jobs_by_state(session, _FINISHED), models, counted
    )


def _count_jobs_by_state(session: Session, states: list[str]) -> dict[str, int]:
    """Count the jobs in each of the given states."""
    query = select(Job.state, func.count()).where(Job.state.in_(states)).group_by(Job.state)
    return {state: count for state, count in session.execute(query)}
