"""Two versions on the same held-out images: `a` the one to compare with, `b` the one that is compared."""

from typing import Literal

from pydantic import JsonValue
from typing_extensions import TypedDict

FlipKind = Literal["negative", "positive", "both_wrong"]


class FlipCounts(TypedDict):
    """Of `n` images: right by both, by `a` alone (negative flips), by `b` alone (positive flips), and by none."""

    n: int
    both_right: int
    negative: int
    positive: int
    both_wrong: int


class Flips(FlipCounts):
    """With the negative flip rate `nfr` = negative / n and its 95 % interval (Wilson), null without images;
    and the p of McNemar's exact test that `a` and `b` are equally good.
    """

    nfr: float | None
    nfr_interval: list[float] | None
    mcnemar_p: float


class TaskFlips(Flips):
    """On the held-out images of one task."""

    task: int
    name: str | None


class ClassFlips(FlipCounts):
    """On the images of one class; `task`: whose class it is, in the task scenario, where each task has its own."""

    label: str
    task: int | None


class Confusion(TypedDict):
    """Images by true label (row) and answer (column), in the order of `labels`, of `a` and of `b`."""

    labels: list[str]
    a: list[list[int]]
    b: list[list[int]]


class ConfusedPair(TypedDict):
    """How many images of a class got another answer, by `a` and by `b`."""

    task: int | None
    label: str
    answer: str
    a: int
    b: int


class Difference(TypedDict):
    """A value that differs, by its place such as `method.name`; null: absent."""

    path: str
    a: JsonValue
    b: JsonValue


class LeftOut(TypedDict):
    """A task that is not compared, and why: `versions` were not measured on it, have no answers, or its
    images are gone."""

    task: int
    reason: Literal["not_measured", "answers_missing", "data_deleted", "counts_only"]
    versions: list[int]
    detail: str


class ComparedVersion(TypedDict):
    """One of the two versions."""

    version: int
    parent: int | None
    task: int | None
    status: str


class CompareOut(TypedDict):
    """Two versions, over all tasks that both answer.

    classes: those that differ most come first, at most 1000 of `classes_total`. confusion: null beyond 200
    classes, or where tasks with classes of their own are compared together. pairs: of a class and a wrong
    answer, at most 100, those whose count differs most first. recipe, manifest: what differs alone.
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
    """What a version says of an image, and how probable that is to it, in [0, 1]; null: no finite number."""

    label: str
    probability: float | None


class ComparedImage(TypedDict):
    """A held-out image: its task, its number there, its true label, both answers, and the path of its picture."""

    task: int
    index: int
    label: str
    a: GivenAnswer
    b: GivenAnswer
    image: str


class ComparedImagePage(TypedDict):
    """A page of images by task and number; `total`: of all pages."""

    items: list[ComparedImage]
    total: int
    next_cursor: str | None
