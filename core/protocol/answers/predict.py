"""Predictions."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from core.protocol.answers.sure import SureOut

EngineName = Literal["torch", "onnxruntime"]
"""`torch`: the version's network. `onnxruntime`: its graph, which was found to answer alike; classes are the same."""


class Prediction(TypedDict):
    """The most probable label of one image, and the `top_k` most probable ones, the greatest first.

    `sure`: whether the label is sure, where the model says when one is; null: the held-out images show it of
    none.
    """

    name: Annotated[
        str | None, Field(description="File name of the part; null for arrays and for parts without one")
    ]
    label: str
    probability: float
    probabilities: dict[str, float]
    sure: NotRequired[bool | None]


class ImageError(TypedDict):
    """Why an image has no prediction: `code` is that of a problem, `/problems/<code>`."""

    code: str
    detail: str


class Unusable(TypedDict):
    """An image that cannot be used; the others of its request are answered all the same."""

    name: str | None
    error: ImageError


class PredictOut(TypedDict):
    """One item per image, in the order sent. `answers`: when one is sure, where the model says that.

    `engine`: `onnxruntime` where all images were answered by the version's graph, which gives the same labels as its
    network in `torch`, and probabilities within its tolerance. null: no image could be used.
    """

    version: int
    task: int | None
    engine: EngineName | None
    predictions: list[Prediction | Unusable]
    answers: NotRequired[SureOut]
