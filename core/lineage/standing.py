"""The standing of a task in its model: the outcome of its job, and the decisions of people since.

The last settled standing is stored (`Task.standing`). While a job of the task is unfinished, the
task is queued or running, whatever it was before. A retry that ends without a version leaves the
stored standing unchanged.
"""

from collections.abc import Collection
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.database.jobs import build_unfinished_job_condition
from core.database.states import LEASED, JobState
from core.database.tables import Job, Task


class TaskStanding(StrEnum):
    """Standing of a task in the lineage: queued, running, learned, held, skipped …"""

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"  # its newest version failed its gate, and no decision was made
    LEARNED = "learned"  # the lineage head was taught it
    ROLLED_BACK = "rolled_back"  # an earlier lineage head was taught it
    SKIPPED = "skipped"  # a person let the lineage continue without it
    DISCARDED = "discarded"  # a person discarded it
    REJECTED = "rejected"
    FAILED = "failed"
    CANCELLED = "cancelled"


S = TaskStanding
DEMANDED = (S.LEARNED, S.ROLLED_BACK)
"""Standings of tasks that every new version must have been taught."""
LACKED = (S.ROLLED_BACK, S.SKIPPED, S.DISCARDED)
"""Standings in which a task can be learned again although a version was made of it."""
DISCARDABLE = (S.HELD, S.ROLLED_BACK, S.FAILED, S.REJECTED, S.SKIPPED)
ENDED = {JobState.REJECTED: S.REJECTED, JobState.FAILED: S.FAILED, JobState.CANCELLED: S.CANCELLED}
"""Standing of a task without a version, by the state in which its job ended."""


def read_unfinished_job_states_by_task(session: Session, model_id: str) -> dict[int, JobState]:
    """Read the state of the unfinished job of each task that has one, by task number."""
    query = select(Job.task_number, Job.state).where(
        Job.model_id == model_id, build_unfinished_job_condition(Job.state)
    )
    # Jobs beside the lineage have no task.
    return {
        number: JobState(state) for number, state in session.execute(query) if number is not None
    }


def derive_task_standing(task: Task, unfinished: JobState | None) -> TaskStanding:
    """Derive the standing of a task from its row and its unfinished job.

    Args:
        unfinished: state of its unfinished job; None if it has none.
    """
    if unfinished is not None:
        return S.RUNNING if unfinished in LEASED else S.QUEUED
    return S(task.standing) if task.standing is not None else S.QUEUED


def read_task_standings(
    session: Session, model_id: str, tasks: Collection[Task]
) -> dict[int, TaskStanding]:
    """Read the standing of each given task of one model, by task number."""
    unfinished = read_unfinished_job_states_by_task(session, model_id) if tasks else {}
    return {task.number: derive_task_standing(task, unfinished.get(task.number)) for task in tasks}


def set_task_standing(task: Task, to: TaskStanding, now: float, *, stops: bool = False) -> None:
    """Store the standing of a task.

    Args:
        now: seconds since 1970.
        stops: True if later jobs of the model wait until a person settles this task.
    """
    # A repeated decision leaves the time of the first one.
    if task.standing != to:
        task.standing, task.standing_at = str(to), now
    # Outside of the condition: a repeated standing may stop the lineage, or release it.
    task.stops = stops
