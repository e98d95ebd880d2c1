"""Predictions of classes from logits, and the leaders by which a head of fewer classes predicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from core.learning.problems.problem import PredictionBatch


@dataclass(frozen=True)
class ClassPredictions(PredictionBatch):
    """A version's class predictions for N images, on the CPU.

    The last leader below row k is the best of the first k classes, which an older version knew. The
    last three have the smallest integer type that holds the head's rows; None in older files
    without them.

    Attributes:
        rows: int32 [N], predicted rows of the head: indices into `Network.list_classes`.
        probabilities: float16 [N], of the predicted row, in the softmax of the method's logits over
            the version's temperature.
        targets: [N], the true rows.
        leaders: the rows of each image that score higher than all rows before them, ascending,
            image after image.
        leader_counts: [N], number of leaders of each image.
    """

    rows: Tensor
    probabilities: Tensor
    targets: Tensor | None = None
    leaders: Tensor | None = None
    leader_counts: Tensor | None = None

    def mask_correct_predictions(self, targets: Tensor) -> Tensor:
        """Return a mask bool [N] of predictions whose row is the target, int64 [N]."""
        return self.rows == targets


def make_class_predictions(logits: Tensor, targets: Tensor, temperature: float) -> ClassPredictions:
    """Make class predictions from logits [N, classes], by the softmax of logits / temperature.

    targets: int64 [N], the true rows.
    """
    leaders, counts = find_running_maximum_columns(logits)
    integers = choose_row_number_dtype(logits.shape[1])
    return ClassPredictions(
        *choose_top_head_rows_with_probabilities(logits, temperature),
        targets.to(integers),
        leaders.to(integers).cpu(),
        counts.to(integers).cpu(),
    )


def choose_top_head_rows_with_probabilities(
    logits: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Choose each image's row with the highest logit, int32 [N], with its probability, float16 [N].

    Both are on the CPU.
    """
    row = logits.argmax(1, keepdim=True)
    probabilities = (logits.float() / temperature).softmax(1).gather(1, row)
    # Half precision is enough to show a probability, and a quarter of the bytes is stored.
    return row.squeeze(1).int().cpu(), probabilities.squeeze(1).half().cpu()


def concatenate_class_predictions(
    parts: Sequence[ClassPredictions], classes: int
) -> ClassPredictions:
    """Concatenate class predictions of one head with `classes` classes."""
    # An empty part, so that a task without images has tensors of the right types.
    none = torch.zeros(0, dtype=choose_row_number_dtype(classes))
    empty = ClassPredictions(
        torch.zeros(0, dtype=torch.int32), torch.zeros(0, dtype=torch.float16), none, none, none
    )
    listed = [empty, *parts]
    names = [field.name for field in fields(ClassPredictions)]
    return ClassPredictions(
        *(torch.cat([getattr(part, name) for part in listed]) for name in names)
    )


def split_class_predictions(
    predictions: ClassPredictions, sizes: Sequence[int]
) -> list[ClassPredictions]:
    """Split predictions into parts of consecutive images, which share the memory of the whole.

    The inverse of `concatenate_class_predictions`.

    Args:
        predictions: with targets and leaders, of sum(sizes) images.
        sizes: number of images of each part.
    """
    targets, leaders, counts = predictions.targets, predictions.leaders, predictions.leader_counts
    assert targets is not None and leaders is not None and counts is not None
    # An image has as many leaders as its count says, so parts of leaders have lengths of their own.
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    parts, start = [], 0
    for size in sizes:
        images = slice(start, start + size)
        parts.append(
            ClassPredictions(
                predictions.rows[images],
                predictions.probabilities[images],
                targets[images],
                leaders[ends[start] : ends[start + size]],
                counts[images],
            )
        )
        start += size
    return parts


def find_running_maximum_columns(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Find for each row the columns whose score exceeds all scores before them, ascending.

    `argmax` of the first k columns is the last such column below k: both take the lowest of equal
    scores.

    Args:
        scores: [B, C].

    Returns:
        The columns of all rows one after the other, and their number by row [B].
    """
    scores = scores.nan_to_num(
        nan=math.inf, posinf=math.inf, neginf=-math.inf
    )  # argmax treats nan as the greatest value
    # The first column has none before it, so it always leads.
    leads = torch.ones_like(scores, dtype=torch.bool)
    leads[:, 1:] = scores[:, 1:] > scores.cummax(1).values[:, :-1]
    return leads.nonzero()[:, 1], leads.sum(1)


def choose_row_number_dtype(classes: int) -> torch.dtype:
    """Choose the smallest integer type that can hold a head's row numbers."""
    # At most 255: the number of leaders, up to the number of rows, must fit as well.
    if classes <= torch.iinfo(torch.uint8).max:
        return torch.uint8
    return torch.int16 if classes <= torch.iinfo(torch.int16).max else torch.int32
