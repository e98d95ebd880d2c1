"""Reports of workers: the device that each runs jobs on, and which of them has lost it.

Each reports once in `REPORT_S` seconds and counts as there for `SEEN_S`. What is older is kept for a day, to say since
when there is none.
"""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from core.db.tables import WorkerReport

REPORT_S = 10.0
"""A sixth of the usual lease: the reports of workers that die young still follow one another closely."""
SEEN_S = 90.0
KEPT_S = 86_400.0

Status = Literal["up", "none", "device lost"]


@dataclass(frozen=True)
class Device:
    """A device of jobs: cpu or cuda, the number of CUDA devices, and the problem that keeps them from use, if any."""

    kind: str
    gpus: int = 0
    problem: str | None = None


def report(
    session: Session, worker: str, device: Device, now: float, answers_since: float | None = None
) -> None:
    """Note that a worker is there, and forget those that were last seen a day ago, or will be: a clock was put back.

    Args:
        answers_since: since when the database has answered the worker; None: it cannot say.
    """
    off = or_(WorkerReport.seen_at < now - KEPT_S, WorkerReport.seen_at > now + KEPT_S)
    session.execute(delete(WorkerReport).where(off))
    session.merge(
        WorkerReport(
            worker=worker,
            device=device.kind,
            gpus=device.gpus,
            problem=device.problem,
            seen_at=now,
            answers_since=answers_since,
        )
    )


def answers_since(session: Session, seen_from: float, now: float) -> float | None:
    """Return since when the database has answered, by the workers seen from a time on; None: none of them can say."""
    reported = select(func.min(WorkerReport.answers_since)).where(
        WorkerReport.seen_at >= seen_from, WorkerReport.answers_since <= now
    )
    return session.scalar(reported)


def count(session: Session, now: float) -> dict[tuple[str, str], int]:
    """Return how many workers are there, by (device, state); state is up or lost."""
    is_lost = WorkerReport.problem.is_not(None)
    query = (
        select(WorkerReport.device, is_lost, func.count())
        .where(WorkerReport.seen_at >= now - SEEN_S)
        .group_by(WorkerReport.device, is_lost)
    )
    found = {(device, state): 0 for device in ("cpu", "cuda") for state in ("up", "lost")}
    for device, lost, number in session.execute(query):
        found[device, "lost" if lost else "up"] = number
    return found


def status(session: Session, now: float) -> Status:
    """Return the word for `/readyz`: "device lost" where one of the workers has lost its device."""
    found = count(session, now)
    if found["cpu", "lost"] or found["cuda", "lost"]:
        return "device lost"
    return "up" if any(found.values()) else "none"


def cuda_workers(session: Session) -> list[tuple[int, float]]:
    """Return (usable CUDA devices, when a worker with so many last reported) of all that reported within a day."""
    query = (
        select(WorkerReport.gpus, func.max(WorkerReport.seen_at))
        .where(WorkerReport.device == "cuda", WorkerReport.problem.is_(None))
        .group_by(WorkerReport.gpus)
    )
    return [(gpus, seen_at) for gpus, seen_at in session.execute(query)]
