"""What a model remembers of its training images."""

from typing_extensions import TypedDict


class TaskMemory(TypedDict):
    """Stored images, or rows of features, of one task, and how many of each class."""

    task: int
    items: int
    per_class: dict[str, int]


class PartMemory(TypedDict):
    """One type of part: `buffer`, `exemplars`, `features`, or `own` for what else the method keeps.

    `bytes` counts the part and the packs that hold its images, also images that it has given up. `items` counts images,
    or the images whose features are kept by this version and those that it was learned from; null for a part that holds
    none. `per_class` adds up all tasks, by label.
    """

    type: str
    bytes: int
    items: int | None
    per_task: list[TaskMemory]
    per_class: dict[str, int]
    deleted_at: str | None


class MemoryOut(TypedDict):
    """The memory of the version that `production` names; empty where the method keeps none.

    `items` counts stored images; features are no images, and their part counts them.
    """

    version: int
    bytes: int
    items: int
    parts: list[PartMemory]
