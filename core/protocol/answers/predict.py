"""Predictions."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict


class Prediction(TypedDict):
    """The most probable label of one image, and the `top_k` most probable ones, the greatest first."""

    name: Annotated[
        str | None, Field(description="File name of the part; null for arrays and for parts without one")
    ]
    label: str
    probability: float
    probabilities: dict[str, float]


class ImageError(TypedDict):
    """Why an image has no prediction: `code` is that of a problem, `/problems/<code>`."""

    code: str
    detail: str


class Unusable(TypedDict):
    """An image that cannot be used; the others of its request are answered all the same."""

    name: str | None
    error: ImageError


class PredictOut(TypedDict):
    """One item per image, in the order sent."""

    version: int
    task: int | None
    predictions: list[Prediction | Unusable]
