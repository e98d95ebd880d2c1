"""Where a task stands in its model: what its job came to, and what people decided since.

Stored is what was settled last (`Task.standing`). While a job of the task is unfinished the task is open, whatever it
was before; a retry or relearning that ends without a version leaves it where it was.
"""

from collections.abc import Collection
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.jobs import is_unfinished
from core.db.states import LEASED, State
from core.db.tables import Job, Task


class Standing(StrEnum):
    """Queued and running are not stored: they are what an unfinished job makes of any task."""

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"  # its newest version failed its gate, and nobody has settled that
    LEARNED = "learned"  # the line head was taught it
    ROLLED_BACK = "rolled_back"  # the line head was taught it once
    SKIPPED = "skipped"  # a person let the line go on without it
    DISCARDED = "discarded"  # a person does not want it
    REJECTED = "rejected"
    FAILED = "failed"
    CANCELLED = "cancelled"


S = Standing
DEMANDED = (S.LEARNED, S.ROLLED_BACK)
"""What every new version must have been taught."""
LACKED = (S.ROLLED_BACK, S.SKIPPED, S.DISCARDED)
"""What can be learned again, though a version was made of it."""
DISCARDABLE = (S.HELD, S.ROLLED_BACK, S.FAILED, S.REJECTED, S.SKIPPED)
ENDED = {State.REJECTED: S.REJECTED, State.FAILED: S.FAILED, State.CANCELLED: S.CANCELLED}
"""What a job that ends without a version makes of a task that no version was made of."""


def open_tasks(session: Session, model_id: str) -> dict[int, State]:
    """Number of each task that has an unfinished job → that job's state."""
    query = select(Job.task_number, Job.state).where(Job.model_id == model_id, is_unfinished(Job.state))
    return {number: State(state) for number, state in session.execute(query) if number is not None}


def standing(task: Task, unfinished: State | None) -> Standing:
    """Where a task stands; `unfinished`: the state of its unfinished job, if there is one."""
    if unfinished is not None:
        return S.RUNNING if unfinished in LEASED else S.QUEUED
    return S(task.standing) if task.standing is not None else S.QUEUED


def standings(session: Session, model_id: str, tasks: Collection[Task]) -> dict[int, Standing]:
    """Number → standing of some tasks of one model."""
    unfinished = open_tasks(session, model_id) if tasks else {}
    return {task.number: standing(task, unfinished.get(task.number)) for task in tasks}


def settle(task: Task, to: Standing, now: float, *, stops: bool = False) -> None:
    """Write where a task stands; `stops`: later jobs of the model wait until a person settles it."""
    if task.standing != to:
        task.standing, task.standing_at = str(to), now
    task.stops = stops
