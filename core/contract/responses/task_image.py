"""The images in a task's data."""

from typing import Literal

from typing_extensions import TypedDict

Split = Literal["train", "held_out"]


class TaskImage(TypedDict):
    """One image of a task: its number from 0, its label, and its path in the batch.

    `path`: null for tasks of earlier releases, and where it was deleted.
    """

    index: int
    label: str
    path: str | None


class TaskImagePage(TypedDict):
    """A page of a task's training or held-out images, by rising number.

    `total`: number in the whole part, or in the requested class.
    """

    items: list[TaskImage]
    total: int
    next_cursor: str | None
