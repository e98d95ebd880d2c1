"""A problem that lives in one file: the sum of the digits in an image.

Targets are float32 sums, and a head has one output. In the product, the file would lie beside
`core/learning/problems/classification.py`, with its line in `registry.py` there: the end-to-end test
puts it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.problems.problem import (
    DataError,
    PredictionBatch,
    PrimaryMeasureDefinition,
    Problem,
)
from core.learning.problems.registration import register_problem

GREATEST = 36
"""Sum of four nines."""
FAR = 18.0
"""Error at which a prediction scores 0."""
NEAR = 2.0
"""Error up to which a prediction counts as right."""


@dataclass(frozen=True)
class Sums(PredictionBatch):
    """Predicted sums float32 [N], and the true ones."""

    values: Tensor
    targets: Tensor


@register_problem
class DigitSums(Problem[Sums]):
    """The problem `digit-sums`: regression of one number per image."""

    name = "digit-sums"
    description = "The sum of the digits in an image."
    source = "a test"
    primary_measure = PrimaryMeasureDefinition(
        "closeness", "closeness", f"Mean over images of 1 - |error| / {FAR:g}, at least 0."
    )
    augmentations = ("none", "shift")

    def make_targets_from_labels(
        self, labels: Tensor, names: Sequence[str], outputs: Sequence[str]
    ) -> Tensor:
        """Return the sums, float32 [N], on which no output has an effect."""
        values = [_read_sum(name) for name in names]
        return torch.tensor(values, dtype=torch.float32)[labels]

    def list_outputs_for_labels(self, names: Sequence[str]) -> list[str]:
        """Return the one output."""
        return ["sum"]

    def loss(self, outputs: Tensor, targets: Tensor, among: Tensor | None = None) -> Tensor:
        """Return the mean squared error, as a share of the greatest sum."""
        return functional.mse_loss(outputs.float().squeeze(1), targets / GREATEST)

    def decode(self, outputs: Tensor, targets: Tensor, temperature: float) -> Sums:
        """Return the sums of outputs [N, 1], which have no temperature."""
        return Sums(_convert_to_sums(outputs), targets)

    def concatenate_predictions(self, parts: Sequence[Sums], outputs: int) -> Sums:
        """Concatenate predictions."""
        none = torch.zeros(0)
        return Sums(
            torch.cat([none, *(part.values for part in parts)]),
            torch.cat([none, *(part.targets for part in parts)]),
        )

    def read_prediction_from_tensors(self, tensors: Mapping[str, Tensor]) -> Sums:
        """Return stored predictions."""
        return Sums(tensors["values"], tensors["targets"])

    def score_outputs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return 1 - |error| / 18, at least 0."""
        return _score_values(_convert_to_sums(outputs), targets)

    def score(self, prediction: Sums, targets: Tensor) -> Tensor:
        """Return the scores of predictions."""
        return _score_values(prediction.values, targets)

    def mask_right_scores(self, scores: Tensor) -> Tensor:
        """Return true for sums that are off by at most 2."""
        return scores >= 1 - NEAR / FAR

    def render(self, prediction: Sums, outputs: Sequence[str]) -> list[dict[str, Any]]:
        """Return the sum of each image."""
        return [{outputs[0]: value} for value in prediction.values.tolist()]

    def response_schema(self) -> dict[str, Any]:
        """Return the schema of a sum."""
        return {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}


def _convert_to_sums(outputs: Tensor) -> Tensor:
    return (outputs.float().squeeze(1) * GREATEST).cpu()


def _score_values(values: Tensor, targets: Tensor) -> Tensor:
    return (1 - (values - targets).abs() / FAR).clamp(0, 1)


def _read_sum(name: str) -> float:
    if not name.isdecimal() or int(name) > GREATEST:
        raise DataError(f"{name!r} is no sum of four digits: labels must be 0 to {GREATEST}")
    return float(name)
