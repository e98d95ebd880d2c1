"""Request bodies about tasks."""

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.common import FreeName, Reason, StrictRequestBody
from core.contract.jobs.trial import Choose
from core.contract.patch import RecipePatch

MAX_TRIAL_S = 365 * 86_400.0
"""Longest budget of trials: a year, far beyond any job."""
MAX_SECONDS_MEANING = (
    "Seconds of the job after which no further trial begins; at least one is measured"
)


class Settle(StrictRequestBody):
    """The reason why a task is skipped or discarded."""

    reason: Reason | None = None


class FromUpload(StrictRequestBody):
    """A batch that was uploaded in pieces (`/v1/uploads`): id, name, and a recipe override or
    trials.
    """

    upload: str = Field(max_length=40)
    name: FreeName | None = None
    recipe: RecipePatch | None = None
    trials: Annotated[
        Literal["auto"] | list[RecipePatch] | None,
        Field(description="Recipes to compare for this batch, 2 to 8; auto: some that fit"),
    ] = None
    choose: Annotated[
        Choose | None, Field(description="Decision between trials; default: best")
    ] = None
    max_seconds: Annotated[
        float | None, Field(gt=0, le=MAX_TRIAL_S, description=MAX_SECONDS_MEANING)
    ] = None
