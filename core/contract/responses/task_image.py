"""The images in a task's data."""

from typing import Literal

from typing_extensions import TypedDict

Split = Literal["train", "held_out"]


class TaskImage(TypedDict):
    """One image of a part: its number from 0, and its label."""

    index: int
    label: str


class TaskImagePage(TypedDict):
    """A page of the images of one part, by rising number.

    `total`: number in the whole part, or in the requested class.
    """

    items: list[TaskImage]
    total: int
    next_cursor: str | None
