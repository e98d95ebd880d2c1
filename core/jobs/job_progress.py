"""Progress of a job for its page: its newest log lines, and its curves reduced to few points."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.responses.job import JobOut
from core.database.session import Database
from core.database.states import JobState
from core.database.tables import Job, Model, StoredJobEvent
from core.jobs import jobs
from core.jobs.anytime import PAST
from core.requests.actor import Actor
from core.requests.timestamps import format_rfc3339

EVENTS = 5000
"""Maximum number of the newest events that curves are drawn from."""
LINES = 100
"""Maximum number of the newest log lines that are shown."""
POINTS = 600
"""Maximum number of points of a curve."""


@dataclass(frozen=True)
class JobLogLine:
    """A line of a job's log, as its page shows it."""

    at: str
    level: str
    message: str


@dataclass(frozen=True)
class BestStateSummary:
    """Summary of a job's best state so far, while it can be downloaded.

    `accuracy` on the validation images is in [0, 1].
    """

    step: int
    accuracy: float


@dataclass(frozen=True)
class JobPageData:
    """A job with its model's name, log and curves, for its page.

    Attributes:
        job: the job.
        model, scenario: name and scenario of the model.
        last: id of the newest event; 0 if there is none.
        log: newest log lines, oldest first.
        loss: pairs of a report's number and the mean loss since the previous report, by time.
        best: best state; None if there is none to download.
    """

    job: JobOut
    model: str
    scenario: str
    last: int
    log: list[JobLogLine] = field(default_factory=list)
    loss: list[tuple[int, float]] = field(default_factory=list)
    best: BestStateSummary | None = None


def read_job_page_data(db: Database, actor: Actor, job_id: str) -> JobPageData:
    """Read what the page of a job shows: the job, its log and its curves.

    Raises:
        NotFound: the caller sees no such job.
    """
    # First, since it refuses a job that the caller does not see; the queries below do not.
    job = jobs.read_job(db, actor, job_id)
    with db.read() as session:
        model = session.get_one(Model, job["model"])
        name, scenario = model.name, model.scenario
        newest = _find_newest_events(session, job["id"], None, 1)
        log_events = _find_newest_events(session, job["id"], "log", LINES)
        reports = _find_newest_events(session, job["id"], "progress", EVENTS)
        best = _find_downloadable_best_state(session, session.get_one(Job, job["id"]))
    # The newest events are read, and shown in the order in which they happened.
    log = [
        JobLogLine(format_rfc3339(one.at), str(one.data.get("level")), str(one.data.get("message")))
        for one in reversed(log_events)
    ]
    losses = [one.data.get("loss") for one in reversed(reports)]
    loss = [
        (index, float(value))
        for index, value in enumerate(losses)
        if isinstance(value, int | float)
    ]
    last = newest[0].id if newest else 0
    return JobPageData(job, name, scenario, last, log, thin_out_curve_points(loss, POINTS), best)


def thin_out_curve_points(
    points: Sequence[tuple[int, float]], max_points: int
) -> list[tuple[int, float]]:
    """Reduce a curve to at most `max_points` points.

    The lowest and the highest point of each stretch remain, so that no peak is lost.
    """
    if len(points) <= max_points:
        return list(points)
    # Rounded up, since two points remain of each stretch and there must not be more than `most`.
    stretch = -(-2 * len(points) // max_points)
    extremes: list[tuple[int, float]] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        low, high = min(part, key=lambda one: one[1]), max(part, key=lambda one: one[1])
        extremes += sorted({low, high})
    return extremes


def _find_downloadable_best_state(session: Session, job: Job) -> BestStateSummary | None:
    """Return the job's best state that can be downloaded, or None."""
    if job.anytime is None or JobState(job.state) in PAST:
        return None
    query = select(StoredJobEvent.data["value"].as_float()).where(
        StoredJobEvent.job_id == job.id,
        StoredJobEvent.type == "metric",
        StoredJobEvent.data["name"].as_string() == "anytime",
    )
    accuracy = session.scalars(query.order_by(StoredJobEvent.id.desc()).limit(1)).first()
    return None if accuracy is None else BestStateSummary(job.anytime.step, accuracy)


def _find_newest_events(
    session: Session, job_id: str, kind: str | None, limit: int
) -> Sequence[StoredJobEvent]:
    """Return the newest events of a job, newest first, of one type or of all."""
    query = select(StoredJobEvent).where(StoredJobEvent.job_id == job_id)
    if kind is not None:
        query = query.where(StoredJobEvent.type == kind)
    return session.scalars(query.order_by(StoredJobEvent.id.desc()).limit(limit)).all()
