"""Shapes of jobs and their events."""

from typing import Any

from api.schemas.batches import BatchCheck
from api.schemas.common import Body, Json, Shape
from api.schemas.models import RecipeIn


class Progress(Shape):
    """Where a job is; null: not known yet."""

    phase: str | None
    epoch: int | None
    step: int | None
    total_steps: int | None
    images_per_s: float | None
    eta_s: float | None


class WaitingFor(Shape):
    """A task that stops the line of the job's model. `kind`: held, failed or rejected."""

    kind: str
    version: int | None
    task: int
    detail: str


class JobOut(Shape):
    """A piece of long work. Of the kind `learn`: of learning one task; `validate`: a batch that is only checked.

    `task`: null where no task is learned; `report`: what a check found, once the job is over;
    `outcome`: whether its version was published or is held; `waiting_for`: what keeps a queued job from its turn;
    `warnings`: tasks that its version will lack, and what to do.
    """

    id: str
    kind: str
    model: str
    task: int | None
    state: str
    is_terminal: bool
    attempt: int
    progress: Progress
    error: Json | None
    version: int | None
    outcome: str | None
    waiting_for: WaitingFor | None
    warnings: list[str]
    recipe: Json
    retry_of: str | None
    report: BatchCheck | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class JobPage(Shape):
    """A page of jobs, newest first."""

    items: list[JobOut]
    next_cursor: str | None


class Retry(Body):
    """A retry or relearning may bring another recipe override; `{}`: the model's recipe, null: the one it had."""

    recipe: RecipeIn | None = None


class EventOut(Shape):
    """One event; ids rise."""

    id: int
    type: str
    at: str
    data: Json


class EventPage(Shape):
    """A page of events."""

    items: list[EventOut]
    next_cursor: str | None


class LogLine(Shape):
    """One line of a job's log."""

    id: int
    at: str
    level: str
    message: str


class LogPage(Shape):
    """A page of a job's log."""

    items: list[LogLine]
    next_cursor: str | None


class Point(Shape):
    """One measurement while learning: a number, or structured data."""

    id: int
    at: str
    name: str
    step: int | None
    value: float | None
    data: Any


class PointPage(Shape):
    """A page of a job's measurements; loss among them."""

    items: list[Point]
    next_cursor: str | None
