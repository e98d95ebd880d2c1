"""Edits of what a model was taught: as they are stored, and as they are shown."""

from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from core.contract.document import Document

Way = Literal["recompute", "relearn", "rename"]
"""Way in which a model takes an edit: from kept features, by learning its later tasks again, or by
other names alone."""


class EditedTask(Document):
    """A task before or after an edit.

    Attributes:
        number: number of the task.
        classes: number of images of each label.
        n_train, n_held_out: images of its parts.
        train, held_out, traces: digests of its files; None for one that is not retained.
        bytes: sizes of these files by name.
    """

    number: int
    classes: dict[str, int]
    n_train: int
    n_held_out: int | None = None
    train: str | None = None
    held_out: str | None = None
    traces: str | None = None
    bytes: dict[str, int] = Field(default_factory=dict)


class EditedCell(Document):
    """A cell of the accuracy matrix before an edit changed the labels that it counts."""

    version: int
    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]


class Journal(Document):
    """Changes that an edit made to the rows of its model, from which it can be undone.

    Attributes:
        before, after: the edited tasks.
        cells: cells of the matrix that were counted again, as they were.
        relabelled, removed: numbers of images.
    """

    before: list[EditedTask] = Field(default_factory=list)
    after: list[EditedTask] = Field(default_factory=list)
    cells: list[EditedCell] = Field(default_factory=list)
    relabelled: int = 0
    removed: int = 0


class EditResult(Document):
    """The result of an edit's job besides its version, as a file of the result's folder.

    Attributes:
        parent: version that the new one continues.
        taught: tasks of the new version, in order.
        classes: former class → new name; None: it is dropped.
        before, after: the edited tasks.
        cells: cells of older versions by the new labels; their stored predictions are dropped.
        relabelled, removed: numbers of images.
        can_undo: False if images were removed, which leaves nothing to restore them from.
    """

    parent: int
    taught: list[int]
    classes: dict[str, str | None]
    before: list[EditedTask]
    after: list[EditedTask]
    cells: list[EditedCell]
    relabelled: int
    removed: int
    can_undo: bool


class EditedImages(TypedDict):
    """Numbers of images that an edit changes; null while it is not known."""

    relabelled: int | None
    removed: int | None


class EditPlanOut(TypedDict):
    """Changes that an edit would make.

    - `parent`: version that the edit would start from; send it along, and numbers of images cannot
      mean others.
    - `way`: `recompute` adds up kept features again; `relearn` learns again from kept images;
      `rename` learns nothing.
    - `tasks`: tasks whose data changes.
    - `learned_again`: tasks that are learned again.
    - `classes_before`, `classes_after`: numbers of classes.
    - `can_undo`: false if images are removed.
    """

    parent: int
    way: Way
    tasks: list[int]
    learned_again: list[int]
    classes_before: int
    classes_after: int
    operations: int
    can_undo: bool


class FileDigests(TypedDict):
    """Digests of a task's training and held-out images; null for a part that is not retained."""

    train: str | None
    held_out: str | None


class EditedFiles(TypedDict):
    """Files of a task before and after an edit."""

    task: int
    before: FileDigests
    after: FileDigests


class EditOut(TypedDict):
    """An edit.

    - `state`: state of its job.
    - `version`: the version that it made; null until then.
    - `images`: counted by its job.
    - `undo_until`: end of the time in which it can be undone; null if it cannot.
    - `undone_at`: time at which it was undone.
    - `files`: digests of the edited tasks' files before and after; empty until it is made.
    - `still_in_versions`: older versions that hold features or images of tasks from which it
      removed images; `POST …/purge` deletes these. Empty if it removed none.
    """

    number: int
    job: str
    state: str
    operations: int
    way: Way
    tasks: list[int]
    images: EditedImages
    parent: int
    version: int | None
    reason: str | None
    created_at: str
    undo_until: str | None
    undone_at: str | None
    files: list[EditedFiles]
    still_in_versions: list[int]


class EditPage(TypedDict):
    """A page of a model's edits, newest first."""

    items: list[EditOut]
    next_cursor: str | None


class ClassAliasOut(TypedDict):
    """A class name that batches may still use.

    - `name`: the name in a batch.
    - `to`: the class that it stands for; null: the class was dropped.
    - `edit`: number of the edit that replaced it.
    """

    name: str
    to: str | None
    edit: int
    created_at: str


class ClassAliasPage(TypedDict):
    """Former class names of a model, by name."""

    items: list[ClassAliasOut]
