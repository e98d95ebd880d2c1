"""Shapes of predictions."""

from api.schemas.common import Shape


class Prediction(Shape):
    """The most probable label of one image, and all probabilities (they sum to 1)."""

    label: str
    probability: float
    probabilities: dict[str, float]


class PredictOut(Shape):
    """One prediction per image, in order."""

    version: int
    task: int | None
    predictions: list[Prediction]
