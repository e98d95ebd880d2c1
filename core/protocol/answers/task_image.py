"""The images that a task's data has."""

from typing import Literal

from typing_extensions import TypedDict

Split = Literal["train", "held_out"]


class TaskImage(TypedDict):
    """One image of a part: its number there, from 0, and its label."""

    index: int
    label: str


class TaskImagePage(TypedDict):
    """A page of the images of one part, by rising number; `total`: of the whole part, or of the class that
    was asked for."""

    items: list[TaskImage]
    total: int
    next_cursor: str | None
