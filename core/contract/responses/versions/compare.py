"""Comparison of two versions on the same held-out images: `a` is the reference, `b` is compared."""

from typing import Literal

from pydantic import JsonValue
from typing_extensions import TypedDict

FlipKind = Literal["negative", "positive", "both_wrong"]


class FlipCounts(TypedDict):
    """Agreement of two versions on `n` images: both correct, only `a` (negative), only `b`
    (positive), both wrong.
    """

    n: int
    both_right: int
    negative: int
    positive: int
    both_wrong: int


class Flips(FlipCounts):
    """Counts of images on which two versions differ, with statistical significance.

    - `nfr`: negative flip rate, negative / n; null without images.
    - `nfr_interval`: its 95 % interval (Wilson); null without images.
    - `mcnemar_p`: p of McNemar's exact test that `a` and `b` are equally good.
    """

    nfr: float | None
    nfr_interval: list[float] | None
    mcnemar_p: float


class TaskFlips(Flips):
    """Predictions that changed between two versions, on the held-out images of one task."""

    task: int
    name: str | None


class ClassFlips(FlipCounts):
    """Predictions that changed between two versions, on the images of one class.

    `task`: the task of the class in the task scenario, where each task has its own classes.
    """

    label: str
    task: int | None


class Confusion(TypedDict):
    """Confusion matrices of versions `a` and `b`: images by true label (row) and predicted label
    (column).
    """

    labels: list[str]
    a: list[list[int]]
    b: list[list[int]]


class ConfusedPair(TypedDict):
    """Numbers of images of a class that versions `a` and `b` predict as a particular wrong class."""

    task: int | None
    label: str
    answer: str
    a: int
    b: int


class Difference(TypedDict):
    """A recipe or manifest value that differs between two versions, by its path; null: absent."""

    path: str
    a: JsonValue
    b: JsonValue


class LeftOut(TypedDict):
    """A task that a comparison of versions leaves out, and the reason.

    Reasons are that `versions` were not measured on it or have no answers, or that its images are
    deleted.
    """

    task: int
    reason: Literal["not_measured", "answers_missing", "data_deleted", "counts_only"]
    versions: list[int]
    detail: str


class ComparedVersion(TypedDict):
    """One of the two versions in a comparison."""

    version: int
    parent: int | None
    task: int | None
    status: str


class CompareOut(TypedDict):
    """Comparison of two versions over all tasks that both can answer.

    - `classes`: the largest differences first, at most 1000 of `classes_total`.
    - `confusion`: null beyond 200 classes, and if tasks with their own classes are compared
      together.
    - `pairs`: pairs of a class and a wrong answer, at most 100, the largest differences first.
    - `recipe`, `manifest`: only the values that differ.
    """

    model: str
    a: ComparedVersion
    b: ComparedVersion
    totals: Flips
    tasks: list[TaskFlips]
    classes: list[ClassFlips]
    classes_total: int
    confusion: Confusion | None
    pairs: list[ConfusedPair]
    recipe: list[Difference]
    manifest: list[Difference]
    left_out: list[LeftOut]


class GivenAnswer(TypedDict):
    """A version's predicted class for an image, and its probability in [0, 1]; null: not a finite
    number.
    """

    label: str
    probability: float | None


class ComparedImage(TypedDict):
    """A held-out image in a comparison of versions: task, number, true label, both predictions and
    its picture.
    """

    task: int
    index: int
    label: str
    a: GivenAnswer
    b: GivenAnswer
    image: str


class ComparedImagePage(TypedDict):
    """A page of compared images, ordered by task and number; `total` counts all pages."""

    items: list[ComparedImage]
    total: int
    next_cursor: str | None
