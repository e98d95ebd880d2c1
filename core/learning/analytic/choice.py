"""Choice between classifiers of the same sums, by their scores on left-out examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.evaluation.calibration.temperature import fit_softmax_temperature


@dataclass(frozen=True)
class ClassifierChoice:
    """The classification head (ridge, discriminant …) chosen for prediction, with the compared
    accuracies.

    Attributes:
        head: its name.
        accuracy: balanced accuracy of each candidate on left-out examples, in [0, 1]; NaN without
            any.
        error: standard error of the difference between the two best.
    """

    head: str
    accuracy: dict[str, float]
    error: float


@dataclass(frozen=True)
class LeaveOneOutScoredExamples:
    """Training examples with their leave-one-out scores, by which classifiers are compared.

    Attributes:
        h: float64 [n, K], the features that sums are taken over.
        labels: int64 [n].
        choosing: bool [n], examples that choose λ and ρ.
        excluded: bool [n, C], classes of other heads than the example's; None for a single head.
    """

    h: Tensor
    labels: Tensor
    choosing: Tensor
    excluded: Tensor | None = None

    def mask_scores_of_other_heads(self, scores: Tensor) -> Tensor:
        """Replace the scores [n, C] of other tasks' heads by −inf."""
        return scores if self.excluded is None else scores.masked_fill(self.excluded, -torch.inf)


@dataclass(frozen=True)
class ScoredExampleLimit:
    """Limit of the examples scored to compare classifiers, so that the cost hardly grows with the
    classes.

    Attributes:
        least, most: number of examples.
        scores: number of scores, one for each example and class, above `least` examples.
    """

    least: int
    scores: int
    most: int

    def compute_example_limit(self, classes: int) -> int:
        """Return the number of examples to score when there are so many `classes`."""
        return min(self.most, max(self.least, self.scores // classes))


def choose_best_head_or_keep_current(
    scores: Mapping[str, Tensor], labels: Tensor, current: str | None
) -> ClassifierChoice:
    """Choose the head with the better balanced accuracy on left-out examples.

    Where two are within one standard error of their difference, the current head stays, so that
    equally good heads do not alternate. Without a current head, the one with the lower
    cross-entropy is then chosen: on eight streams of digits and photos this chose the better one
    more often (docs/design/defaults.md).

    Args:
        scores: name → float64 [n, C] of left-out examples; of two heads or more, the preferred one
            first.
        labels: int64 [n].
        current: the head of the previous version; None for a first version.
    """
    right = {
        name: (head_results.argmax(1) == labels).double() for name, head_results in scores.items()
    }
    accuracy = {
        name: compute_class_average_and_error(head_results, labels)[0]
        for name, head_results in right.items()
    }
    present = current if current is not None and current in scores else None
    standing = present or next(iter(scores))
    if not len(labels):
        return ClassifierChoice(standing, accuracy, float("nan"))
    best = max(accuracy, key=lambda name: accuracy[name])  # the first of several equals
    runner_up = standing if best != standing else _find_second_best_head(accuracy, best)
    gain, error = compute_class_average_and_error(right[best] - right[runner_up], labels)
    if gain <= error:
        best = present or min(
            scores, key=lambda name: _compute_best_tempered_cross_entropy(scores[name], labels)
        )
    return ClassifierChoice(best, accuracy, error)


def compute_class_average_and_error(values: Tensor, labels: Tensor) -> tuple[float, float]:
    """Average values over each class and then over the classes; also return the standard error.

    Both are NaN without examples.

    Args:
        values: float64 [n].
        labels: int64 [n]; classes without examples do not count. A class of one example has a
            variance of 0.
    """
    counts = torch.bincount(labels)
    present = counts > 0
    n = counts[present].double()
    if not len(n):
        return float("nan"), float("nan")
    sums = torch.zeros(len(counts), dtype=values.dtype).index_add_(0, labels, values)[present]
    means = sums / n
    squares = torch.zeros(len(counts), dtype=values.dtype).index_add_(0, labels, values.square())[
        present
    ]
    # Rounding may leave a variance just below zero, whose root would be NaN.
    variance = (squares - n * means.square()).clamp(min=0) / (n - 1).clamp(min=1) / n
    return float(means.mean()), float(variance.sum().sqrt() / len(n))


def _compute_best_tempered_cross_entropy(scores: Tensor, labels: Tensor) -> float:
    """Return the mean cross-entropy of scores at the softmax temperature that fits them best."""
    return float(functional.cross_entropy(scores / fit_softmax_temperature(scores, labels), labels))


def _find_second_best_head(accuracy: Mapping[str, float], best: str) -> str:
    """Return the most accurate classification head other than `best`."""
    return max((name for name in accuracy if name != best), key=lambda name: accuracy[name])
