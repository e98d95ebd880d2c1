"""The queue in figures, for monitoring: the same whichever API process is asked."""

from dataclasses import dataclass

from sqlalchemy import func, select

from core.db.session import Database
from core.db.states import LEASED, State
from core.db.tables import Job, Model, Version


@dataclass(frozen=True)
class Figures:
    """`oldest_s`: how long the oldest queued job has waited, in seconds; 0 without one."""

    jobs: dict[str, int]
    oldest_s: float
    expired: int
    models: int
    versions: dict[str, int]


def figures(db: Database) -> Figures:
    """Count jobs by state (every state named), waiting time, expired leases, models and versions."""
    with db.read() as session:
        now = db.now(session)
        counted = {
            state: count
            for state, count in session.execute(select(Job.state, func.count()).group_by(Job.state))
        }
        oldest = session.execute(
            select(func.min(Job.created_at)).where(Job.state == str(State.QUEUED))
        ).scalar_one()
        expired = session.execute(
            select(func.count())
            .select_from(Job)
            .where(Job.state.in_(sorted(str(s) for s in LEASED)), Job.lease_until < now)
        ).scalar_one()
        models = session.execute(
            select(func.count()).select_from(Model).where(Model.deleted_at.is_(None))
        ).scalar_one()
        versions = {
            status: count
            for status, count in session.execute(
                select(Version.status, func.count()).group_by(Version.status)
            )
        }
    return Figures(
        {str(state): counted.get(str(state), 0) for state in State},
        max(0.0, now - oldest) if oldest is not None else 0.0,
        expired,
        models,
        {status: versions.get(status, 0) for status in ("published", "held")},
    )
