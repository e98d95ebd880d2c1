"""Suspicious labels of training images, by confident learning with a network not trained on them.

Each image is judged by a linear discriminant fitted without it (five folds, `core.learning.evaluation.baselines`)
and without its near duplicates under the same label, which may be equally wrong. Its scores are
divided by the temperature that makes them probabilities. As in confident learning (Northcutt et al.
2021, arXiv 1911.00068) a label is doubted by its out-of-sample probability. The criterion is no
threshold per class, but how many times more probable another class is: the more classes there are,
the higher it is. On features that separate classes less well, that finds fewer wrong labels but
accuses fewer right ones (docs/design/data-report.md).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from core.learning.analytic import discriminant
from core.learning.evaluation.baselines import (
    FOLDS,
    assign_cross_validation_folds,
    find_first_image_of_each_group,
    subtract_fold_sums,
    sum_features_by_class,
)
from core.learning.evaluation.calibration.temperature import fit_softmax_temperature

FEWEST_OF_A_CLASS = 5
"""Fewest images of a class, near duplicates as one, for it to be judged: each fold needs one."""
RATIO, RATIO_OF_A_CLASS = 30.0, 3.0
"""Factor by which another class must be more probable: the larger of the first, and the second
times the number of classes."""
WIDEST = 512
"""Most features that are used as they are; more are reduced to random combinations."""
_TEMPERED = 1024
"""Images that the temperature is chosen on, evenly spaced."""


class ImagesWithSuspectLabels(NamedTuple):
    """Images of a batch whose labels look wrong, with suggested classes.

    Attributes:
        rows: int64 [k] of the images, the most suspicious first.
        suggested: int64 [k], classes.
        scores: float64 [k], how many times more probable the suggested class is.
        examined: number of images that were judged.
    """

    rows: Tensor
    suggested: Tensor
    scores: Tensor
    examined: int


def find_images_with_suspect_labels(
    features: Tensor, labels: Tensor, generator: torch.Generator, groups: Tensor | None = None
) -> ImagesWithSuspectLabels:
    """Find the images of a batch whose labels look wrong.

    Args:
        features: float [n, D], finite.
        labels: int64 [n].
        generator: of the CPU; for wide features.
        groups: int64 [n], equal numbers of near duplicates; None: there are none.
    """
    counts = torch.bincount(labels[find_first_image_of_each_group(labels, groups)[0]], minlength=1)
    judged = (counts >= FEWEST_OF_A_CLASS)[labels].nonzero().squeeze(1)
    number, label = torch.unique(labels[judged], return_inverse=True)
    if len(number) < 2:
        nothing = torch.zeros(0, dtype=torch.int64)
        return ImagesWithSuspectLabels(nothing, nothing, nothing.double(), 0)
    alike = None if groups is None else groups[judged]
    log = estimate_label_probabilities(
        reduce_feature_count_randomly(features[judged], generator), label, alike
    ).log()
    own_log = log.gather(1, label[:, None]).squeeze(1)
    best, suggested = log.max(1)
    threshold = torch.tensor(max(RATIO, RATIO_OF_A_CLASS * len(number)), dtype=torch.float64).log()
    suspect_rows = ((best - own_log) > threshold).nonzero().squeeze(1)
    suspect_rows = suspect_rows[
        # Stable: equal scores stay in the order of the images.
        (best - own_log)[suspect_rows].argsort(descending=True, stable=True)
    ]
    return ImagesWithSuspectLabels(
        judged[suspect_rows],
        number[suggested[suspect_rows]],
        (best - own_log)[suspect_rows].exp(),
        len(judged),
    )


def estimate_label_probabilities(
    features: Tensor, labels: Tensor, groups: Tensor | None = None
) -> Tensor:
    """Estimate out-of-sample probabilities float64 [n, C] of labels 0 to C − 1; none is 0.

    Each label needs two images or more. `groups` is as in `find_images_with_suspect_labels`.
    """
    h, classes = features.double(), int(labels.max()) + 1
    fold = assign_cross_validation_folds(labels, groups)
    class_sums = sum_features_by_class(h, labels, classes, wide=False)
    scores = torch.zeros(len(labels), classes, dtype=torch.float64)
    for one in range(FOLDS):
        out = fold == one
        made_of = subtract_fold_sums(
            class_sums, sum_features_by_class(h[out], labels[out], classes, wide=False)
        )
        scores[out] = discriminant.solve_linear_discriminant_analysis(made_of)(h[out])
    tempered_rows = (
        torch.arange(min(len(labels), _TEMPERED)) * len(labels) // min(len(labels), _TEMPERED)
    )
    return (
        (scores / fit_softmax_temperature(scores[tempered_rows], labels[tempered_rows]))
        .softmax(1)
        # A probability of 0 would make its logarithm infinite.
        .clamp(min=1e-12)
    )


def reduce_feature_count_randomly(features: Tensor, generator: torch.Generator) -> Tensor:
    """Reduce too many features to random combinations of them (Johnson & Lindenstrauss 1984)."""
    width = features.shape[1]
    if width <= WIDEST:
        return features
    # A covariance of all features would take their square in memory and the cube in time.
    drawn: Tensor = torch.randn(width, WIDEST, generator=generator, dtype=features.dtype)
    combined: Tensor = features @ drawn / WIDEST**0.5
    return combined
