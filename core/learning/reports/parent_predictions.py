"""Predictions of the parent version for new classes, before they are learned.

The parent has to assign each of their images a class that it knows. The number of sure predictions
among these is what production would have got wrong, without a sign, for such images.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from core.contract.reports.data_report import WouldSay
from core.learning.data.dataset import Dataset
from core.learning.evaluation.evaluate import Predict, choose_evaluation_batch_size
from core.learning.evaluation.probe import choose_evenly_spaced_rows
from core.learning.networks import Network
from core.learning.networks.network import use_eval_mode
from core.learning.precision import InputNormaliser, use_full_precision
from core.learning.problems.class_predictions import choose_top_head_rows_with_probabilities

MOST_IMAGES = 1000
SHOWN = 100
SURELY = 0.9
"""Probability of a sure prediction, for models without a threshold of their own."""


@dataclass(frozen=True)
class ParentPredictor:
    """The parent version with its prediction function, as the data report uses it."""

    network: Network
    predict: Predict
    inputs: InputNormaliser
    temperature: float
    version: int
    sure_from: float | None

    @contextmanager
    def use_prediction_mode(self) -> Iterator[None]:
        """Context manager that predicts in evaluation mode, full precision and without
        gradients.
        """
        with (
            use_eval_mode(self.network),
            use_full_precision(self.inputs.device),
            torch.inference_mode(),
        ):
            yield


def find_most_predicted_class_of_new_classes(
    parent: ParentPredictor, data: Dataset
) -> list[WouldSay]:
    """Find what the parent version most often predicts for images of each class that it does not
    know.

    Classes with the largest share of sure predictions come first.
    """
    known_classes = parent.network.classes
    is_new = torch.tensor([name not in set(known_classes) for name in data.names], dtype=torch.bool)
    rows = is_new[data.labels].nonzero().squeeze(1)
    if not known_classes or not len(rows):
        return []
    # A share needs no more images, and each costs a pass.
    rows = rows[choose_evenly_spaced_rows(len(rows), MOST_IMAGES)]
    predicted, probabilities = _predict_top_head_rows_with_probabilities(parent, data, rows)
    # The model's own threshold: what production would have called sure.
    threshold = SURELY if parent.sure_from is None else parent.sure_from
    results: list[WouldSay] = []
    for label in data.labels[rows].unique().tolist():  # type: ignore[no-untyped-call]
        mine = data.labels[rows] == label
        favourite = int(predicted[mine].mode().values)
        is_favourite = mine & (predicted == favourite)
        results.append(
            {
                "label": data.names[label],
                "said": known_classes[favourite],
                "images": int(is_favourite.sum()),
                "surely": int((is_favourite & (probabilities >= threshold)).sum()),
                "of": int(mine.sum()),
                "least": threshold,
                "version": parent.version,
            }
        )
    return sorted(results, key=lambda one: -one["surely"] / one["of"])[:SHOWN]


def _predict_top_head_rows_with_probabilities(
    parent: ParentPredictor, data: Dataset, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Predict selected images: return rows int64 [n] and probabilities float16 [n]."""
    parts: list[tuple[torch.Tensor, torch.Tensor]] = []
    with parent.use_prediction_mode():
        for indices in rows.split(choose_evaluation_batch_size(data.images)):  # type: ignore[no-untyped-call]
            logits = parent.predict(parent.network, parent.inputs(data.images[indices]), None)
            parts.append(choose_top_head_rows_with_probabilities(logits, parent.temperature))
    picked, probabilities = zip(*parts, strict=True)
    return torch.cat(picked).long(), torch.cat(probabilities)
