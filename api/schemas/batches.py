"""Shapes of what is said of a batch: by names and sizes, or by its images."""

from typing import Literal

from pydantic import Field

from api.schemas.common import Json, Shape


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


class BatchFound(Shape):
    """What a check of a batch found; `warnings`, `recipe` and refusals are those that a submit would give."""

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
    not_checked: list[str]
    recipe: Json
    warnings: list[str]


class Report(BatchFound):
    """What `?validate=only` found in the archive's directory."""

    valid: bool
    checked: Literal["names and sizes"]


class BatchCheck(BatchFound):
    """What `?validate=full` found.

    `valid`: whether a submit would take the batch; null: the job ended before that was known, and `checked` says what the
    rest is from. `n_train`, `n_held_out`: images that would be learned and held out; `n_test`: of the archive's own part.
    """

    valid: bool | None
    checked: Literal["names and sizes", "images"]
    n_held_out: int | None
