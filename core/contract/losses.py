"""Losses of a version relative to the one in production, counted per image when it was made.

The gate uses them.
"""

from typing_extensions import TypedDict


class NewlyMisclassifiedImage(TypedDict):
    """A held-out image that was classified correctly before and is classified wrongly now.

    `index`: position in its task's held-out part.
    """

    task: int
    index: int
    label: str
    before: str
    now: str


class GateClassComparison(TypedDict):
    """Counts of one class in a comparison of two versions: images, correct before, turned wrong,
    and turned correct.

    `task`: set in the task scenario, where each task has its own classes.
    """

    label: str
    task: int | None
    images: int
    before: int
    negative: int
    positive: int


class GateComparison(TypedDict):
    """Counts of a comparison of two versions: images that turned wrong (`negative`) and correct
    (`positive`).

    - `against`: the version compared with.
    - `classes`: the worst first.
    - `pictures`: a few images that turned wrong.
    - `missing`: why nothing was compared, in words; then all counts are 0.
    """

    against: int | None
    images: int
    negative: int
    positive: int
    classes: list[GateClassComparison]
    pictures: list[NewlyMisclassifiedImage]
    missing: str | None


class TaskDriftFlipCounts(TypedDict):
    """Counts of one task's images that turned wrong or correct, against the best of the last
    versions.
    """

    task: int
    against: int
    images: int
    negative: int
    positive: int


class GateDriftComparison(GateComparison):
    """Counts by task of images that turned wrong or correct, the least probable by chance first.

    `compared`: number of tasks that were compared.
    """

    tasks: list[TaskDriftFlipCounts]
    compared: int


class DetectableLosses(TypedDict):
    """Sizes of accuracy loss that the compared images can reveal.

    - `loss`: smallest share of lost images that is detected in 95 of 100 cases; null: none.
    - `then`: that share with `more` further images; null: no number of them helps.
    """

    images: int
    loss: float | None
    more: int | None
    then: float | None


class GateComparisons(TypedDict):
    """Comparisons of a new version for its gate: with production on earlier tasks and on the
    batch's own images, and drift.

    - `new`: the batch's held-out images of new classes, of which `positive` are correct.
    - `known`: its held-out images of known classes.
    """

    forgotten: GateComparison
    confused: GateComparison
    class_lost: GateComparison
    drifted: GateDriftComparison
    new: GateComparison
    known: GateComparison
    visible: DetectableLosses
