"""Shapes of tasks."""

from api.schemas.batches import BatchReport
from api.schemas.common import Body, Json, Reason, Shape
from api.schemas.jobs import JobOut


class TaskOut(Shape):
    """One uploaded batch. `accuracy_now` is that of the newest published version, null if not measured on it.

    `standing`: queued, running, held, learned, rolled_back, skipped, discarded, rejected, failed or cancelled.
    `training_data_until`: when its training images go; null: not decided, or gone (`can_relearn` says which).
    """

    id: str
    number: int
    name: str | None
    sha256: str
    bytes: int
    classes: dict[str, int]
    n_train: int | None
    n_held_out: int | None
    report: BatchReport
    job: str | None
    state: str | None
    standing: str
    training_data_until: str | None
    can_relearn: bool
    recipe: Json | None
    version: int | None
    accuracy_when_learned: float | None
    accuracy_now: float | None
    data_deleted_at: str | None
    created_at: str
    warnings: list[str]


class Settle(Body):
    """Why a task is passed over or discarded."""

    reason: Reason | None = None


class TaskPage(Shape):
    """A page of a model's history."""

    items: list[TaskOut]
    next_cursor: str | None


class Accepted(Shape):
    """A batch that was accepted, and the job that learns it."""

    task: TaskOut
    job: JobOut
