"""Losses of a version beside the one in production, counted image by image when it was made: for its gate."""

from typing_extensions import TypedDict


class LostImage(TypedDict):
    """A held-out image that was answered right before and is answered wrong now; `index`: in its task's held-out
    part."""

    task: int
    index: int
    label: str
    before: str
    now: str


class ClassLoss(TypedDict):
    """Counts of a class: its images, those that were right before, that turned wrong, and that turned right.

    `task`: in the task scenario, where each task has classes of its own.
    """

    label: str
    task: int | None
    images: int
    before: int
    negative: int
    positive: int


class LossCount(TypedDict):
    """Counts of one comparison: images that turned wrong (`negative`) and right (`positive`).

    `against`: the version that was compared with. `classes`: the worst first; `pictures`: a few images that turned
    wrong. `missing`: why nothing was compared, in words; then all counts are 0.
    """

    against: int | None
    images: int
    negative: int
    positive: int
    classes: list[ClassLoss]
    pictures: list[LostImage]
    missing: str | None


class TaskLoss(TypedDict):
    """Counts of one task beside the best of the last versions."""

    task: int
    against: int
    images: int
    negative: int
    positive: int


class DriftCount(LossCount):
    """Counts by task, the least probable first; `compared`: how many tasks there are."""

    tasks: list[TaskLoss]
    compared: int


class Visible(TypedDict):
    """Losses that the compared images can show: `loss`, the smallest share of lost images that is seen in 95 of 100
    cases (null: none); with `more` images it would be `then` (null: no number of them helps)."""

    images: int
    loss: float | None
    more: int | None
    then: float | None


class Losses(TypedDict):
    """All comparisons of a version: with production on earlier tasks, and on the batch's own held-out images.

    `new`: the batch's images of new classes, of which `positive` are right; `known`: its images of known classes.
    """

    forgotten: LossCount
    confused: LossCount
    class_lost: LossCount
    drifted: DriftCount
    new: LossCount
    known: LossCount
    visible: Visible
