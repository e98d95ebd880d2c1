"""Edits of what a model was taught: as they are stored, and as they are shown."""

from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from core.contract.document import Document, JsonObject

Way = Literal["recompute", "relearn", "rename", "patch"]
"""Way in which a model takes an edit: from kept features, by learning its later tasks again, by
other names alone, or by changed rows of its classifier where neither images nor features are kept.
"""


class TaskStateBeforeOrAfterEdit(Document):
    """State of a task's data before or after an edit: its classes and the digests of its files.

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


class MatrixCellBeforeEdit(Document):
    """A cell of the accuracy matrix before an edit changed the labels that it counts."""

    version: int
    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]


class TaskReportFactsChangedByEdit(Document):
    """Facts in a task's report that an edit changes, as they are after the edit.

    Attributes:
        classes: number of images of each label.
        held_out: held-out images of each label; None where only their number is known.
        touched: training images that were relabelled or removed, by their former numbers; None if
            it is not known which.
        removed: those that were removed, ascending.
    """

    classes: dict[str, int]
    held_out: dict[str, int] | None = None
    touched: list[int] | None = None
    removed: list[int] = Field(default_factory=list)


class TaskReportBeforeEdit(Document):
    """The report of a task before an edit, kept so that the edit can be undone."""

    task: int
    report: JsonObject


class EditUndoRecord(Document):
    """Record of what an edit changed in the rows of its model, by which it can be undone.

    Attributes:
        before, after: the edited tasks.
        cells: cells of the matrix that were counted again, as they were.
        measured_otherwise: tasks whose held-out labels or images changed, other than by name.
        relabelled, removed: numbers of images.
        reports: reports that the edit changed, as they were; empty if it cannot be undone, since
            they may name removed images.
    """

    before: list[TaskStateBeforeOrAfterEdit] = Field(default_factory=list)
    after: list[TaskStateBeforeOrAfterEdit] = Field(default_factory=list)
    cells: list[MatrixCellBeforeEdit] = Field(default_factory=list)
    measured_otherwise: list[int] = Field(default_factory=list)
    reports: list[TaskReportBeforeEdit] = Field(default_factory=list)
    relabelled: int = 0
    removed: int = 0


class EditResult(Document):
    """Result file of an edit's job, besides the files of its version.

    Attributes:
        parent: version that the new one continues.
        taught: tasks of the new version, in order.
        classes: former class → new name; None: it is dropped.
        before, after: the edited tasks.
        cells: cells of older versions by the new labels; their stored predictions are dropped.
        measured_otherwise: tasks whose held-out labels or images changed, other than by name.
        reports: what the reports of edited tasks show, by number.
        removed_paths: paths of the removed images; never stored.
        relabelled, removed: numbers of images.
        can_undo: False if images were removed, which leaves nothing to restore them from.
        class_numbers: new number of each class of the parent, -1 for none; None: all are as they
            were.
    """

    parent: int
    taught: list[int]
    classes: dict[str, str | None]
    before: list[TaskStateBeforeOrAfterEdit]
    after: list[TaskStateBeforeOrAfterEdit]
    cells: list[MatrixCellBeforeEdit]
    measured_otherwise: list[int]
    reports: dict[int, TaskReportFactsChangedByEdit]
    removed_paths: list[str]
    relabelled: int
    removed: int
    can_undo: bool
    class_numbers: list[int] | None = None


class EditedImages(TypedDict):
    """Numbers of images that an edit relabels or removes; null while not known."""

    relabelled: int | None
    removed: int | None


class EditPlanOut(TypedDict):
    """Preview of the changes that an edit would make to a model.

    - `parent`: version that the edit would start from; send it along, and numbers of images cannot
      mean others.
    - `way`: `recompute` adds up kept features again; `relearn` learns again from kept images;
      `rename` learns nothing; `patch` changes rows of the classifier, without images.
    - `approximation`: what a patch cannot know, for a person; null where the version is exactly
      that of the edited batches.
    - `tasks`: tasks whose data changes.
    - `learned_again`: tasks that are learned again.
    - `classes_before`, `classes_after`: numbers of classes.
    - `can_undo`: false if images are removed.
    """

    parent: int
    way: Way
    approximation: str | None
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
    """Digests of a task's files before and after an edit."""

    task: int
    before: FileDigests
    after: FileDigests


class PurgeRequest(TypedDict):
    """The request that deletes what older versions still hold of images that an edit removed."""

    method: str
    path: str


class EditOut(TypedDict):
    """One edit of a model's batches: classes merged, renamed or dropped, labels changed, or images
    removed.

    - `state`: state of its job.
    - `version`: the version that it made; null until then.
    - `images`: counted by its job.
    - `undo_until`: end of the time in which it can be undone; null if it cannot.
    - `undone_at`: time at which it was undone.
    - `files`: digests of the edited tasks' files before and after; empty until it is made.
    - `still_in_versions`: older versions that hold features or images of tasks from which it
      removed images; `POST …/purge` deletes these. Empty if it removed none.
    - `purge_request`: the one request that deletes these; null if there is nothing to delete.
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
    purge_request: PurgeRequest | None


class EditPage(TypedDict):
    """A page of a model's edits, newest first."""

    items: list[EditOut]
    next_cursor: str | None


class ClassAliasOut(TypedDict):
    """A former class name that batches may still use, and the class that it now means.

    - `name`: the name in a batch.
    - `to`: the class that it stands for; null: the class was dropped.
    - `edit`: number of the edit that replaced it.
    """

    name: str
    to: str | None
    edit: int
    created_at: str


class ClassAliasPage(TypedDict):
    """A page of a model's former class names, ordered by name."""

    items: list[ClassAliasOut]
