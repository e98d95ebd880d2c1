"""Reports of workers: the device that each runs jobs on, and those that have lost it.

Each worker reports every `REPORT_S` seconds, and counts as present for `SEEN_S`. Older reports are
stored for a day, to show since when there is no worker.
"""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from core.database.tables import WorkerReport

REPORT_S = 10.0
"""A sixth of the usual lease, so that reports of short-lived workers also follow closely."""
SEEN_S = 90.0
KEPT_S = 86_400.0

Status = Literal["up", "none", "device lost"]


@dataclass(frozen=True)
class WorkerDevice:
    """Device on which a worker runs jobs: cpu or cuda, number of CUDA devices, and any problem with
    it.
    """

    kind: str
    gpus: int = 0
    problem: str | None = None


def record_worker_presence(
    session: Session,
    worker: str,
    device: WorkerDevice,
    now: float,
    answers_since: float | None = None,
) -> None:
    """Record that a worker is present, and delete other workers' reports that are too old or in the
    future.

    Args:
        now: seconds since 1970 by the database's clock.
        answers_since: time since when the database has responded to the worker; None if it does not
            know.
    """
    # A clock that was set back leaves reports of the future, which would never get too old.
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


def read_database_available_since(session: Session, seen_from: float, now: float) -> float | None:
    """Return since when the database has responded, as far as workers have reported since a given
    time.

    Return None if none knows.
    """
    # A time in the future was recorded before the clock was set back.
    reported = select(func.min(WorkerReport.answers_since)).where(
        WorkerReport.seen_at >= seen_from, WorkerReport.answers_since <= now
    )
    return session.scalar(reported)


def count_present_workers(session: Session, now: float) -> dict[tuple[str, str], int]:
    """Count the present workers by (device, state); the state is up or lost."""
    is_lost = WorkerReport.problem.is_not(None)
    query = (
        select(WorkerReport.device, is_lost, func.count())
        .where(WorkerReport.seen_at >= now - SEEN_S)
        .group_by(WorkerReport.device, is_lost)
    )
    counts = {(device, state): 0 for device in ("cpu", "cuda") for state in ("up", "lost")}
    for device, has_problem, number in session.execute(query):
        counts[device, "lost" if has_problem else "up"] = number
    return counts


def read_workers_status(session: Session, now: float) -> Status:
    """Return the workers' status for the readiness probe: "device lost" if a worker has lost its
    device.
    """
    counts = count_present_workers(session, now)
    if counts["cpu", "lost"] or counts["cuda", "lost"]:
        return "device lost"
    return "up" if any(counts.values()) else "none"


def list_last_reports_by_cuda_count(session: Session) -> list[tuple[int, float]]:
    """Return (usable CUDA devices, time of the last such report) of the workers that reported
    within a day.
    """
    query = (
        select(WorkerReport.gpus, func.max(WorkerReport.seen_at))
        .where(WorkerReport.device == "cuda", WorkerReport.problem.is_(None))
        .group_by(WorkerReport.gpus)
    )
    return [(gpus, seen_at) for gpus, seen_at in session.execute(query)]
