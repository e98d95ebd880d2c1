"""The running time of a job: the sum over its attempts since it last ended, without pauses.

An attempt cannot last longer than a job may run, since its worker ends it by a monotonic clock. A
longer or negative period shows that the database's clock was set forward or back, or that the
service was off; it is not counted.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.states import LEASED, TERMINAL
from core.db.tables import Event

SLACK_S = 3600.0
"""Seconds that an attempt may exceed the job's limit, for work before and after its process."""
_LEASED, _TERMINAL = (frozenset(str(state) for state in states) for states in (LEASED, TERMINAL))


def count_seconds(session: Session, job_id: str, now: float, most_s: float) -> float:
    """Return the seconds in which a worker had the job, by its events.

    Time before the job last ended is not counted.

    Args:
        now: seconds since 1970 by the database's clock.
        most_s: seconds that the job may run.
    """

    def measure_period(end: float, begin: float) -> float:
        return end - begin if 0 <= end - begin <= most_s + SLACK_S else 0.0

    query = select(Event.data["state"].as_string(), Event.at)
    total, since = 0.0, None
    for state, at in session.execute(
        # Ordered by id and not by time, since the clock may have been set back in between.
        query.where(Event.job_id == job_id, Event.type == "state").order_by(Event.id)
    ):
        if since is not None:
            total += measure_period(at, since)
        since = at if state in _LEASED else None
        # A job that is retried gets the whole limit again.
        if state in _TERMINAL:
            total = 0.0
    return total + (measure_period(now, since) if since is not None else 0.0)
