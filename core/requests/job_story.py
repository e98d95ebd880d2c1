"""What a job has said so far, as a page shows it: its newest log lines, and its curves with few points."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Event, Model
from core.protocol.answers.job import JobOut
from core.requests import jobs
from core.requests.actor import Actor
from core.requests.times import rfc3339

EVENTS = 5000
"""The newest events that curves are drawn of."""
LINES = 100
"""The newest log lines that are shown."""
POINTS = 600
"""Of a curve."""


@dataclass(frozen=True)
class Line:
    """A line of the log."""

    at: str
    level: str
    message: str


@dataclass(frozen=True)
class Story:
    """A job, its model's name, and what it said. `last`: id of its newest event, 0 without any.

    loss: (number of the report, mean loss since the one before), by time.
    """

    job: JobOut
    model: str
    last: int
    log: list[Line] = field(default_factory=list)
    loss: list[tuple[int, float]] = field(default_factory=list)


def story(db: Database, actor: Actor, job_id: str) -> Story:
    """A job with what it said.

    Raises:
        NotFound: the caller sees no such job.
    """
    job = jobs.read(db, actor, job_id)
    with db.read() as session:
        name = session.get_one(Model, job["model"]).name
        newest = _newest(session, job["id"], None, 1)
        said = _newest(session, job["id"], "log", LINES)
        reports = _newest(session, job["id"], "progress", EVENTS)
    log = [
        Line(rfc3339(one.at), str(one.data.get("level")), str(one.data.get("message")))
        for one in reversed(said)
    ]
    losses = [one.data.get("loss") for one in reversed(reports)]
    loss = [(index, float(value)) for index, value in enumerate(losses) if isinstance(value, int | float)]
    return Story(job, name, newest[0].id if newest else 0, log, thinned(loss, POINTS))


def thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """At most `most` of the points: of each stretch the lowest and the highest, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    stretch = -(-2 * len(points) // most)
    kept: list[tuple[int, float]] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        low, high = min(part, key=lambda one: one[1]), max(part, key=lambda one: one[1])
        kept += sorted({low, high})
    return kept


def _newest(session: Session, job_id: str, kind: str | None, most: int) -> Sequence[Event]:
    query = select(Event).where(Event.job_id == job_id)
    if kind is not None:
        query = query.where(Event.type == kind)
    return session.scalars(query.order_by(Event.id.desc()).limit(most)).all()
