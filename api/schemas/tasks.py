"""Shapes of tasks."""

from typing import Literal

from pydantic import Field

from api.schemas.common import Body, Json, Reason, Shape
from api.schemas.jobs import JobOut


class FileReason(Shape):
    """A file of the archive, and why it was left out."""

    path: str
    reason: str


class Duplicate(Shape):
    """An image, and the first one with the same bytes."""

    path: str
    same_as: str


class Conflict(Shape):
    """The same bytes under two classes: two paths and their labels, in the same order."""

    paths: list[str]
    labels: list[str]


class LookAlike(Shape):
    """A new class, and the one that it looks like: known to the model, or in the same batch."""

    label: str
    like: str


class ClassNames(Shape):
    """The batch's classes beside those that the model has (task scenario: beside each other)."""

    new: list[str]
    known: list[str]
    look_alike: list[LookAlike]


class BatchReport(Shape):
    """What was found in a batch: after the submit by names and sizes, after the job's decoding by its images.

    Lists are bounded (1,000 rejected files, 100 of the others), counts are whole. Tasks from before a field have none.
    """

    checked: Literal["names and sizes", "images"] | None = None
    classes: ClassNames | None = None
    rejected: list[FileReason] = Field(default_factory=list)
    rejected_count: int = 0
    ignored: int = 0
    ignored_files: list[FileReason] = Field(default_factory=list)
    duplicates: int = 0
    duplicate_paths: list[Duplicate] = Field(default_factory=list)
    duplicates_policy: Literal["keep", "drop"] = "keep"
    duplicates_dropped: int = 0
    conflicts: list[Conflict] = Field(default_factory=list)
    conflicts_count: int = 0
    notes: list[str] = Field(default_factory=list)


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
    report: BatchReport
    checked: Literal["names and sizes"]
    not_checked: list[str]
    recipe: Json
    warnings: list[str]
