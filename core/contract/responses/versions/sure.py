"""Sure answers: the promise of a model, and how a version keeps it."""

from typing_extensions import TypedDict


class AnswersSetting(TypedDict):
    """The share of confident ("sure") answers that a model promises to be correct, between 0.5 and
    1.
    """

    precision: float


class SureOut(TypedDict):
    """A model's promise about its confident answers, and whether a version keeps it.

    An answer is sure if its probability is `threshold` or more.

    - `threshold`: null: no threshold keeps the promise of `precision` with 95 % confidence.
    - `images`, `covered`, `right`: held-out images, those with a sure answer, and correct ones of
      those.
    - `needed`: least number of held-out images, if all are classified correctly.
    """

    precision: float
    threshold: float | None
    images: int
    covered: int
    right: int
    needed: int
