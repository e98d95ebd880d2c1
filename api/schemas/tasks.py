"""Shapes of tasks."""

from api.schemas.common import Json, Shape
from api.schemas.jobs import JobOut


class TaskOut(Shape):
    """One uploaded batch. `accuracy_now` is that of the newest published version."""

    id: str
    number: int
    name: str | None
    sha256: str
    bytes: int
    classes: dict[str, int]
    n_train: int | None
    n_held_out: int | None
    report: Json
    job: str | None
    state: str | None
    recipe: Json | None
    version: int | None
    accuracy_when_learned: float | None
    accuracy_now: float | None
    data_deleted_at: str | None
    created_at: str
    warnings: list[str]


class TaskPage(Shape):
    """A page of a model's history."""

    items: list[TaskOut]
    next_cursor: str | None


class Accepted(Shape):
    """A batch that was accepted, and the job that learns it."""

    task: TaskOut
    job: JobOut


class Report(Shape):
    """What `?validate=only` found in the archive's directory."""

    valid: bool
    sha256: str
    bytes: int
    media_type: str
    layout: str
    classes: dict[str, int]
    n_train: int
    n_test: int
    ignored: int
    notes: list[str]
    recipe: Json
    warnings: list[str]
