"""The replay buffer and other state of a model that stems from training images."""

from typing_extensions import TypedDict


class TaskMemory(TypedDict):
    """Replay memory of one task: number of stored images or feature rows, and number per class."""

    task: int
    items: int
    per_class: dict[str, int]


class PartMemory(TypedDict):
    """Replay memory of one type: `buffer`, `exemplars`, `features`, or `own` for the method's other
    state.

    - `bytes`: size of the part and of the packs with its images, including images that it has
      dropped.
    - `items`: number of images. For features, the images whose features this version and its
      ancestors store; null for a part without images.
    - `per_class`: sums over all tasks, by label.
    """

    type: str
    bytes: int
    items: int | None
    per_task: list[TaskMemory]
    per_class: dict[str, int]
    deleted_at: str | None


class MemoryOut(TypedDict):
    """Replay memory of the production version: stored images and method state; empty if there are
    none.

    `items` counts stored images. Features are not images; their part counts them.
    """

    version: int
    bytes: int
    items: int
    parts: list[PartMemory]
