"""Trials in responses."""

from typing_extensions import TypedDict

from core.contract.error import JobError
from core.contract.patch import RecipePatch
from core.contract.trial import Choose, Source


class TrialScoreOut(TypedDict):
    """The score that candidates are compared by; `images`: number of images that it rests on."""

    source: Source
    value: float
    standard_error: float
    images: int


class TrialOut(TypedDict):
    """A candidate of a batch; figures are null until it is measured."""

    trial: int
    recipe: RecipePatch
    reason: str
    state: str
    score: TrialScoreOut | None
    passes_gate: bool | None
    accuracy: dict[str, float | None]
    acc: float | None
    forgetting: float | None
    forecast: float | None
    seconds: float | None
    bytes: int | None
    images: int | None
    error: JobError | None
    why_lost: str | None


class TrialsOut(TypedDict):
    """The candidates of a job.

    `chosen`: the one whose version is published; `until`: time at which the best is chosen.
    """

    job: str
    choose: Choose
    state: str
    source: Source
    chosen: int | None
    best: int | None
    until: str | None
    items: list[TrialOut]


class TrialPlan(TypedDict):
    """A candidate that a submission would try, with the reason for it."""

    trial: int
    recipe: RecipePatch
    reason: str
