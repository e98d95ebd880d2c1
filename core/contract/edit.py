"""Edits of what a model was taught: operations as a client sends them, and edits as they are shown.

An operation is an object with one field that names it, such as `{"rename": {"from": "tshirt",
"to": "T-shirt"}}`.
"""

from typing import Annotated, Literal, NotRequired

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from typing_extensions import TypedDict

from core.contract.document import Document
from core.contract.responses.task_image import Split
from core.text import characters

MAX_OPERATIONS = 10_000
"""Operations of one edit."""

Label = Annotated[
    str,
    StringConstraints(min_length=1, max_length=characters.MAX_NAME_CHARS),
    AfterValidator(characters.clean_name),
]
"""A class name, as in a batch."""
Number = Annotated[int, Field(ge=1, lt=2**31)]
Row = Annotated[int, Field(ge=0, lt=2**31)]
Way = Literal["recompute", "relearn"]
"""How a model takes an edit: from kept features, or by learning its later tasks again."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Relabel(_Strict):
    """Give one image of a task another label, known or new."""

    task: Number
    image: Row
    part: Split = "train"
    label: Label


class Remove(_Strict):
    """Take images out of training and held-out data: one of a task, or all with a path.

    Attributes:
        task: with `image`: its task. With `name`: the only task that is searched.
        image: number of the image in its part.
        part: part of the image.
        name: pattern of paths in the batch, such as `photos/anna*.jpg`; `*` stands for any letters.
    """

    task: Number | None = None
    image: Row | None = None
    part: Split = "train"
    name: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None

    @model_validator(mode="after")
    def _check_target(self) -> "Remove":
        if (self.image is None) == (self.name is None):
            raise ValueError("needs either `image`, with its `task`, or `name`")
        if self.image is not None and self.task is None:
            raise ValueError("needs the `task` of the image")
        return self


class Rename(_Strict):
    """Give a class another name."""

    from_: Label = Field(alias="from")
    to: Label


class Merge(_Strict):
    """Make one class of several; `into` may be one of them or new."""

    from_: Annotated[list[Label], Field(min_length=1, max_length=1000)] = Field(alias="from")
    into: Label


class Drop(_Strict):
    """Take a class out of the model, with its images."""

    class_: Label = Field(alias="class")


class Operation(_Strict):
    """One operation; exactly one field is set."""

    relabel: Relabel | None = None
    remove: Remove | None = None
    rename: Rename | None = None
    merge: Merge | None = None
    drop: Drop | None = None

    @model_validator(mode="after")
    def _check_one(self) -> "Operation":
        if len(self.model_fields_set) != 1 or not any(
            getattr(self, name) is not None for name in type(self).model_fields
        ):
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"an operation has one field, one of {names}")
        return self


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
    """What an edit changed in the rows of its model, so that it can be undone.

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
    """What an edit would do.

    - `way`: `recompute` adds up kept features again; `relearn` learns again from kept images.
    - `tasks`: tasks whose data changes.
    - `learned_again`: tasks that are learned again.
    - `classes_before`, `classes_after`: numbers of classes.
    - `can_undo`: false if images are removed.
    """

    way: Way
    tasks: list[int]
    learned_again: list[int]
    classes_before: int
    classes_after: int
    operations: int
    can_undo: bool


class EditOut(TypedDict):
    """An edit.

    - `state`: state of its job.
    - `version`: the version that it made; null until then.
    - `images`: counted by its job.
    - `undo_until`: end of the time in which it can be undone; null if it cannot.
    - `undone_at`: time at which it was undone.
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
    warnings: NotRequired[list[str]]


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
