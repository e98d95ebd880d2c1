"""Operations of an edit, as a client sends them and as they are stored.

An operation is an object with one field that names it, such as `{"rename": {"from": "tshirt",
"to": "T-shirt"}}`.
"""

from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from core.contract.responses.task_image import Split
from perennial.characters import MAX_NAME_CHARS, validate_and_normalise_name

MAX_OPERATIONS = 10_000
"""Operations of one edit."""

Label = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_NAME_CHARS),
    AfterValidator(validate_and_normalise_name),
]
"""A class name, as in a batch."""
Number = Annotated[int, Field(ge=1, lt=2**31)]
Row = Annotated[int, Field(ge=0, lt=2**31)]


class _StrictRequestBody(BaseModel):
    """Base model of immutable request bodies that refuse unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Relabel(_StrictRequestBody):
    """Edit operation: give one image of a task another label, known or new."""

    task: Number
    image: Row
    part: Split = "train"
    label: Label


class Remove(_StrictRequestBody):
    """Edit operation: remove images from training and held-out data by index, task or path.

    Attributes:
        task: with `image`: its task. With `name`: the only task that is searched. Alone: the task
            whose images are all removed.
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
        if self.image is not None and self.name is not None:
            raise ValueError("takes either `image` or `name`")
        if self.task is None and self.name is None:
            raise ValueError("needs a `task`, or a `name`")
        return self


class Rename(_StrictRequestBody):
    """Edit operation: give a class another name."""

    from_: Label = Field(alias="from")
    to: Label


class MergeClasses(_StrictRequestBody):
    """Edit operation: merge classes into one; `into` may be one of them or new."""

    from_: Annotated[list[Label], Field(min_length=1, max_length=1000)] = Field(alias="from")
    into: Label


class Drop(_StrictRequestBody):
    """Edit operation: drop a class and its images from the model."""

    class_: Label = Field(alias="class")


class Operation(_StrictRequestBody):
    """One operation of an edit request: exactly one of its fields is set."""

    relabel: Relabel | None = None
    remove: Remove | None = None
    rename: Rename | None = None
    merge: MergeClasses | None = None
    drop: Drop | None = None

    @model_validator(mode="after")
    def _require_one_field(self) -> "Operation":
        if len(self.model_fields_set) != 1 or not any(
            getattr(self, name) is not None for name in type(self).model_fields
        ):
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"an operation has one field, one of {names}")
        return self
