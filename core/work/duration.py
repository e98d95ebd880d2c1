"""How long a job has run: over all its attempts since it was last ended, without pauses."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.states import LEASED, TERMINAL
from core.db.tables import Event

_LEASED, _TERMINAL = (frozenset(str(state) for state in states) for states in (LEASED, TERMINAL))


def seconds(session: Session, job_id: str, now: float) -> float:
    """Seconds in states in which a worker had the job, by its events; what was before an end does not count."""
    query = select(Event.data["state"].as_string(), Event.at)
    total, since = 0.0, None
    for state, at in session.execute(
        query.where(Event.job_id == job_id, Event.type == "state").order_by(Event.id)
    ):
        if since is not None:
            total += at - since
        since = at if state in _LEASED else None
        if state in _TERMINAL:
            total = 0.0
    return total + (now - since if since is not None else 0.0)
