"""Known classes of a batch that the parent version predicts as another class.

A version that gets a class right in earlier tasks and predicts another class for most images that
the batch labels so suggests that labels are swapped or wrong. Nothing is found where the version is
weak in earlier tasks too, or where its predictions for the batch are scattered or all the same, as
they are for images of another kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from core.contract.reports.data_report import Mislabelled
from core.learning.data.dataset import Dataset
from core.learning.evaluation.evaluate import choose_evaluation_batch_size
from core.learning.evaluation.probe import choose_evenly_spaced_rows
from core.learning.problems.class_predictions import choose_top_head_rows_with_probabilities
from core.learning.reports.parent_predictions import ParentPredictor

MOST_IMAGES = 1000
"""Most images of the batch that are predicted before any class is doubted, over all classes."""
FEWEST_OF_A_CLASS = 10
"""Images of a class that are predicted, even if there are more classes than `MOST_IMAGES` allow."""
FEWEST = 5
"""Fewest images with the other class for a doubt, and fewest held-out images to confirm it."""
TAKEN = 0.5
"""Share of a class's images predicted as one other class from which its labels are doubted."""
RIGHT = 0.7
"""Share of the class's held-out images in earlier tasks that the version gets right, at least; and
share of the batch predicted as the own or the most frequent class of its label."""
_MOST_ALIKE = 2
"""Classes of a batch that may be predicted as one and the same class: that class, and one more."""
# Keeps the ratio finite where the own label has a probability of zero.
_LEAST_PROBABILITY = 1e-12

EarlierHeldOutLoader = Callable[[], Iterable[tuple[Dataset, Tensor]]]
"""Function that returns held-out parts of earlier tasks, with the rows to use."""


class MislabelledClasses(NamedTuple):
    """Classes of a batch whose labels look swapped or wrong, with their suspicious images.

    Attributes:
        classes: those with the largest share first.
        rows: int64 [k], of the batch.
        suggested: k labels.
        scores: float64 [k], ratio of the suggested class's probability to that of the given one.
    """

    classes: list[Mislabelled]
    rows: Tensor
    suggested: list[str]
    scores: Tensor


def find_mislabelled_classes(
    parent: ParentPredictor, data: Dataset, rows: Tensor, earlier: EarlierHeldOutLoader
) -> MislabelledClasses:
    """Find known classes of a batch whose labels look swapped or wrong.

    Args:
        rows: int64 [n], images of `data` to examine.
        earlier: called only if classes are doubted.
    """
    row_of_label = _map_labels_to_head_rows(parent, data)
    # Of classes that it does not know, the version can only be wrong.
    rows = rows[row_of_label[data.labels[rows]] >= 0]
    doubted = _find_labels_mostly_predicted_as_another(
        parent, data, _select_spaced_rows_per_class(data, rows), row_of_label
    )
    confirmed: list[tuple[Mislabelled, Tensor, Tensor]] = []
    right = (
        _count_correct_in_earlier_tasks(parent, {data.names[label] for label in doubted}, earlier)
        if doubted
        else {}
    )
    for label, suggested in doubted.items():
        correct, held_out = right.get(data.names[label], (0, 0))
        # A version that is weak in this class proves nothing about its labels.
        if held_out < FEWEST or correct < RIGHT * held_out:
            continue
        mine = rows[data.labels[rows] == label]
        # Now all images of the class: the first look was at a sample.
        predicted, scores = _predict_head_rows_and_probability_ratios(
            parent, data, mine, row_of_label
        )
        is_other = predicted == suggested
        count = int(is_other.sum())
        if count < max(FEWEST, TAKEN * len(mine)):
            continue
        entry: Mislabelled = {
            "label": data.names[label],
            "said": parent.network.classes[suggested],
            "images": count,
            "of": len(mine),
            "right": correct,
            "held_out": held_out,
            "version": parent.version,
        }
        confirmed.append((entry, mine[is_other], scores[is_other]))
    # The report shows only the first ones.
    confirmed.sort(key=lambda one: -one[0]["images"] / one[0]["of"])
    return MislabelledClasses(
        [entry for entry, _, _ in confirmed],
        torch.cat([torch.zeros(0, dtype=torch.int64), *(part for _, part, _ in confirmed)]),
        [entry["said"] for entry, part, _ in confirmed for _ in range(len(part))],
        torch.cat([torch.zeros(0, dtype=torch.float64), *(part for _, _, part in confirmed)]),
    )


def _map_labels_to_head_rows(parent: ParentPredictor, data: Dataset) -> Tensor:
    """Map each label of a dataset to the version's head row, int64 [labels]; -1 for an unknown
    class.
    """
    places = {name: row for row, name in enumerate(parent.network.classes)}
    return torch.tensor([places.get(name, -1) for name in data.names], dtype=torch.int64)


def _select_spaced_rows_per_class(data: Dataset, rows: Tensor) -> Tensor:
    """Select evenly spaced rows of each class that has at least `FEWEST` images."""
    labels = data.labels[rows]
    present = torch.bincount(labels, minlength=1).ge(FEWEST).nonzero().squeeze(1).tolist()
    # A bounded look costs little in a batch whose labels are right, which most are.
    share = max(FEWEST_OF_A_CLASS, MOST_IMAGES // max(1, len(present)))
    of_each = [rows[labels == label] for label in present]
    parts = [mine[choose_evenly_spaced_rows(len(mine), share)] for mine in of_each]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *parts])


def _find_labels_mostly_predicted_as_another(
    parent: ParentPredictor, data: Dataset, rows: Tensor, row_of_label: Tensor
) -> dict[int, int]:
    """Find labels whose images the version mostly predicts as one other class: label → that class.

    The dictionary is empty if predictions are scattered.
    """
    predicted, _ = _predict_head_rows_and_probability_ratios(parent, data, rows, row_of_label)
    labels = data.labels[rows].unique().tolist()  # type: ignore[no-untyped-call]
    if len(labels) > 1 and len(predicted.unique()) == 1:  # type: ignore[no-untyped-call]
        return {}  # as for images of another camera; swapped labels leave different predictions
    favourites: dict[int, int] = {}
    explained = 0
    for label in labels:
        mine = predicted[data.labels[rows] == label]
        favourite = int(mine.mode().values)
        fits = mine == row_of_label[label]
        if int((mine == favourite).sum()) >= TAKEN * len(mine):
            favourites[label] = favourite
            fits |= mine == favourite
        explained += int(fits.sum())
    # Scattered predictions mean images of another kind, not swapped labels.
    if explained < RIGHT * len(rows):
        return {}
    alike = Counter(favourites.values())
    return {
        label: favourite
        for label, favourite in favourites.items()
        if favourite != int(row_of_label[label]) and alike[favourite] <= _MOST_ALIKE
    }


def _count_correct_in_earlier_tasks(
    parent: ParentPredictor, names: set[str], earlier: EarlierHeldOutLoader
) -> dict[str, tuple[int, int]]:
    """Count by class the version's correct predictions and images in earlier tasks' held-out
    data.
    """
    counts: dict[str, tuple[int, int]] = {}
    for data, rows in earlier():
        row_of_label = _map_labels_to_head_rows(parent, data)
        is_selected = torch.tensor([name in names for name in data.names], dtype=torch.bool)
        selected = rows[is_selected[data.labels[rows]]]
        predicted, _ = _predict_head_rows_and_probability_ratios(
            parent, data, selected, row_of_label
        )
        is_right = predicted == row_of_label[data.labels[selected]]
        for label in data.labels[selected].unique().tolist():  # type: ignore[no-untyped-call]
            mine = is_right[data.labels[selected] == label]
            correct, total = counts.get(data.names[label], (0, 0))
            counts[data.names[label]] = (correct + int(mine.sum()), total + len(mine))
    return counts


def _predict_head_rows_and_probability_ratios(
    parent: ParentPredictor, data: Dataset, rows: Tensor, row_of_label: Tensor
) -> tuple[Tensor, Tensor]:
    """Predict images: return head rows int64 [n], and their probability over that of the own
    label.
    """
    predicted = [torch.zeros(0, dtype=torch.int64)]
    scores = [torch.zeros(0, dtype=torch.float64)]
    with parent.use_prediction_mode():
        for indices in rows.split(choose_evaluation_batch_size(data.images)):  # type: ignore[no-untyped-call]
            if not len(indices):
                continue
            logits = parent.predict(parent.network, parent.inputs(data.images[indices]), None)
            picked = choose_top_head_rows_with_probabilities(logits, parent.temperature)[0].long()
            likely = (
                (logits.double().cpu() / parent.temperature)
                .softmax(1)
                .clamp(min=_LEAST_PROBABILITY)
            )
            own_rows = row_of_label[data.labels[indices]]
            predicted.append(picked)
            scores.append(
                (likely.gather(1, picked[:, None]) / likely.gather(1, own_rows[:, None])).squeeze(1)
            )
    return torch.cat(predicted), torch.cat(scores)
