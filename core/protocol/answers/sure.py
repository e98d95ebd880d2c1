"""Answers that are called sure: what a model promises of them, and what a version keeps of it."""

from typing_extensions import TypedDict


class AnswersSetting(TypedDict):
    """The share of sure answers that is right, as a model promises it; between 0.5 and 1."""

    precision: float


class SureOut(TypedDict):
    """The promise of a model, and how a version keeps it.

    An answer whose probability is `threshold` or more is sure; null: no threshold keeps the promise of `precision`
    with 95 % confidence. Of `images` held out, `covered` are answered surely, `right` of them rightly. `needed`:
    images that must be held out at least, if all are answered rightly.
    """

    precision: float
    threshold: float | None
    images: int
    covered: int
    right: int
    needed: int
