"""Trials: the candidates of a batch, their scores and figures, as they are stored."""

from typing import Literal

from pydantic import Field

from core.contract.document import Document, Number

Source = Literal["selection", "left-out"]
"""Images that compare candidates: those that no job learns from, or training images whose answers
are computed as if they had been left out."""
Choose = Literal["best", "manual"]
"""Decision between candidates: by their scores, or by a person."""


LEAST_FOR_SELECTION = 8
"""Training images that a class needs before any are set aside for trials."""
SELECTION_SHARE = 0.05
"""Share of a class's training images that is set aside for trials."""


class TrialScore(Document):
    """Score by which the trials of one batch (recipes learned in turn) are compared.

    Attributes:
        source: images that it was computed on.
        value: mean accuracy over tasks (left-out answers: over classes), in [0, 1].
        error: its standard error.
        images: number of images.
        tasks: number of a task → [right, images]; empty for left-out answers.
    """

    source: Source
    value: Number
    error: Number
    images: int
    tasks: dict[str, list[int]] = Field(default_factory=dict)


class TrialMeasurements(Document):
    """Measurements of one trial's result, before any trial is published.

    Attributes:
        score: None if there was no image to compute it on.
        passed: whether its version would pass the gate.
        held: why it would not; None if it passes.
        accuracy: number of a task → [right, images], on held-out images.
        acc: mean accuracy over tasks on held-out images.
        forgetting: mean over earlier tasks; None for a first task.
        forecast: forecast rise of the earlier tasks' mean loss; None if its method makes none.
        bytes: bytes that its version adds to the model.
        images: training images that its version keeps.
    """

    score: TrialScore | None = None
    passed: bool
    held: str | None = None
    accuracy: dict[str, list[int]] = Field(default_factory=dict)
    acc: Number | None = None
    forgetting: Number | None = None
    forecast: Number | None = None
    bytes: int
    images: int
