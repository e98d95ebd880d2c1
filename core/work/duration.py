"""How long a job has run: over all its attempts since it was last ended, without pauses.

No attempt lasts longer than a job may run: its worker ends it by a monotonic clock. A period that is longer, or
negative, shows that the database's clock was put forward or back, or that the service was off; it does not count.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.states import LEASED, TERMINAL
from core.db.tables import Event

SLACK_S = 3600.0
"""An attempt may last this much longer than its job may run: what comes before and after its process."""
_LEASED, _TERMINAL = (frozenset(str(state) for state in states) for states in (LEASED, TERMINAL))


def seconds(session: Session, job_id: str, now: float, most_s: float) -> float:
    """Seconds in states in which a worker had the job, by its events; what was before an end does not count.

    Args:
        most_s: that the job may run.
    """

    def lasted(end: float, begin: float) -> float:
        return end - begin if 0 <= end - begin <= most_s + SLACK_S else 0.0

    query = select(Event.data["state"].as_string(), Event.at)
    total, since = 0.0, None
    for state, at in session.execute(
        query.where(Event.job_id == job_id, Event.type == "state").order_by(Event.id)
    ):
        if since is not None:
            total += lasted(at, since)
        since = at if state in _LEASED else None
        if state in _TERMINAL:
            total = 0.0
    return total + (lasted(now, since) if since is not None else 0.0)
