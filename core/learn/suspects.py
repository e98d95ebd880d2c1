"""Training images whose label looks wrong, by confident learning on features of a network that was not trained on them.

Each image is judged by a linear discriminant that was made without it (five folds, `core.learn.baselines`) and
without its near duplicates under the same label, which may be as wrong. Its scores are divided by the temperature
that makes them probabilities. As in confident learning (Northcutt et al. 2021, arXiv 1911.00068) a label is doubted by
its probability out of sample; not by a threshold for each class, but by how many times more probable another class is:
the more classes there are to be confused with, the more is asked for. On features that tell classes apart worse, that
finds fewer wrong labels but accuses fewer right ones (docs/design/data-report.md).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from core.learn.analytic import discriminant
from core.learn.baselines import FOLDS, first_of_each, folds, sums_of, without
from core.learn.calibration.temperature import fit_temperature

FEWEST_OF_A_CLASS = 5
"""Images of a class, near duplicates as one, below which it is not judged: each fold needs one."""
RATIO, RATIO_OF_A_CLASS = 30.0, 3.0
"""Times that another class must be more probable: the former, or the latter for each class of the batch."""
WIDEST = 512
"""Features; of more, as many random combinations are taken: a covariance has their square."""
_TEMPERED = 1024
"""Images that the temperature is chosen on, evenly spaced."""


class Suspects(NamedTuple):
    """rows: int64 [k] of the images, the most suspicious first; suggested: int64 [k], classes; scores:
    float64 [k], how many times more probable the suggested class is; examined: images that were judged."""

    rows: Tensor
    suggested: Tensor
    scores: Tensor
    examined: int


def suspects(
    features: Tensor, labels: Tensor, generator: torch.Generator, groups: Tensor | None = None
) -> Suspects:
    """The images of a batch whose label looks wrong.

    Args:
        features: float [n, D], finite.
        labels: int64 [n].
        generator: of the CPU; for wide features.
        groups: int64 [n], equal numbers of near duplicates; None: there are none.
    """
    counts = torch.bincount(labels[first_of_each(labels, groups)[0]], minlength=1)
    judged = (counts >= FEWEST_OF_A_CLASS)[labels].nonzero().squeeze(1)
    number, label = torch.unique(labels[judged], return_inverse=True)
    if len(number) < 2:
        nothing = torch.zeros(0, dtype=torch.int64)
        return Suspects(nothing, nothing, nothing.double(), 0)
    alike = None if groups is None else groups[judged]
    log = probabilities(narrowed(features[judged], generator), label, alike).log()
    own = log.gather(1, label[:, None]).squeeze(1)
    best, suggested = log.max(1)
    least = torch.tensor(max(RATIO, RATIO_OF_A_CLASS * len(number)), dtype=torch.float64).log()
    found = ((best - own) > least).nonzero().squeeze(1)
    found = found[(best - own)[found].argsort(descending=True, stable=True)]
    return Suspects(judged[found], number[suggested[found]], (best - own)[found].exp(), len(judged))


def probabilities(features: Tensor, labels: Tensor, groups: Tensor | None = None) -> Tensor:
    """Out of sample, float64 [n, C]: of labels 0 to C − 1, each of which has two images or more; none is 0.

    groups: as of `suspects`.
    """
    h, classes = features.double(), int(labels.max()) + 1
    fold = folds(labels, groups)
    whole = sums_of(h, labels, classes, wide=False)
    scores = torch.zeros(len(labels), classes, dtype=torch.float64)
    for one in range(FOLDS):
        out = fold == one
        made_of = without(whole, sums_of(h[out], labels[out], classes, wide=False))
        scores[out] = discriminant.discriminant(made_of)(h[out])
    some = torch.arange(min(len(labels), _TEMPERED)) * len(labels) // min(len(labels), _TEMPERED)
    return (scores / fit_temperature(scores[some], labels[some])).softmax(1).clamp(min=1e-12)


def narrowed(features: Tensor, generator: torch.Generator) -> Tensor:
    """The features, or as many random combinations of them as are looked at (Johnson & Lindenstrauss 1984)."""
    width = features.shape[1]
    if width <= WIDEST:
        return features
    drawn: Tensor = torch.randn(width, WIDEST, generator=generator, dtype=features.dtype)
    combined: Tensor = features @ drawn / WIDEST**0.5
    return combined
