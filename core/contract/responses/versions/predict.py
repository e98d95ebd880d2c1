"""Predictions."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from core.contract.responses.versions.sure import SureOut

EngineName = Literal["torch", "onnxruntime"]
"""`torch`: the version's network.

`onnxruntime`: its graph, verified to predict the same classes.
"""


class Prediction(TypedDict):
    """Prediction for one image: the most probable label, and the `top_k` most probable ones, best
    first.

    `sure`: whether the label is sure, if the model promises a precision; null: held-out images do
    not show it for any answer.
    """

    name: Annotated[
        str | None,
        Field(description="File name of the part; null for arrays and for parts without one"),
    ]
    label: str
    probability: float
    probabilities: dict[str, float]
    sure: NotRequired[bool | None]


class ImageError(TypedDict):
    """Reason why one image of a prediction request has no prediction.

    `code` is that of a problem, `/problems/<code>`.
    """

    code: str
    detail: str


class Unusable(TypedDict):
    """Item for an unusable image of a prediction request; the other images still get predictions."""

    name: str | None
    error: ImageError


class PredictOut(TypedDict):
    """Response to a prediction request: one item per image, in the order sent.

    - `answers`: threshold of sure answers, if the model promises a precision.
    - `engine`: `onnxruntime` if the version's graph predicted all images. It gives the same labels
      as the network in `torch`, and probabilities within its tolerance. null: no image could be
      used.
    """

    version: int
    task: int | None
    engine: EngineName | None
    predictions: list[Prediction | Unusable]
    answers: NotRequired[SureOut]
