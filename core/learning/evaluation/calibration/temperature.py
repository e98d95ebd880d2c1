"""A temperature that turns logits into calibrated probabilities.

Guo et al. 2017, arXiv 1706.04599. Logits are divided by it before the softmax. The mean
cross-entropy of β · logits is convex in β = 1 / temperature: its derivative is zero at one place.
Newton's method finds it, in log β and between bounds that close in, since each step costs a softmax
of all logits.

The target of an image is its class with the weight (n + 1) / (n + 2), after Platt (1999) for n
images. Without that, held-out images that are all classified correctly would require a probability
of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from core.contract.manifest import LEAST_TEMPERATURE_IMAGES, Temperature
from core.learning.evaluation.calibration.held_out import HeldOutLogits

MOST, MOST_LOGITS, LEAST = 5000, 4_000_000, 1000
"""Limits of the images that a temperature is fitted to, evenly spaced.

At most `MOST` images: more change the temperature by less than a hundredth. Above `LEAST` images,
also at most `MOST_LOGITS` logits, so that the cost does not grow with classes.
"""
_WIDEST, _STEPS = 1e4, 60
"""Bounds of the search for β = 1 / temperature.

β lies within the factor `_WIDEST` of one over the mean gap between the two greatest logits. There
are at most `_STEPS` steps.
"""
_CLOSE = 1e-9
"""Step of log β small enough to end the search."""
_ROWS = 256
"""Images whose probabilities are computed at once, so that the data fits the processor's cache."""
_FAR = -1e30
"""Finite stand-in for the logit of an impossible class.

Its probability is 0, and 0 times it is 0, where 0 times infinity would be NaN.
"""


def fit_softmax_temperature(logits: Tensor, targets: Tensor, start: float | None = None) -> float:
    """Find the softmax temperature with the least mean cross-entropy.

    Twice the logits give twice the temperature. Returns 1 where nothing can be fitted: no images,
    or a single class.

    Args:
        logits: [n, classes] of images that the classifier was not trained on; minus infinity for a
            class that an image cannot have. Rows with NaN, and those whose own class is impossible,
            are skipped.
        targets: int64 [n], columns.
        start: temperature at which the search begins, above 0; one near the result saves steps.
    """
    usable = _find_rows_for_temperature_fit(logits, targets)
    if not len(usable):
        return 1.0
    limit = min(MOST, max(LEAST, MOST_LOGITS // logits.shape[1]))
    # Evenly spaced, since images often come class by class. Chosen before anything is computed in
    # float64: there may be a hundred times as many logits.
    usable = usable[:: -(-len(usable) // limit)]
    z, targets = logits[usable].double(), targets[usable]
    # A softmax does not change by it, and no exponential overflows.
    z -= z.amax(1, keepdim=True)
    impossible = ~torch.isfinite(z)
    target_logit = _compute_mean_smoothed_target_logit(
        z.masked_fill_(impossible, 0.0), impossible, targets
    )
    z.masked_fill_(impossible, _FAR)
    gap = float(-z.topk(2).values[:, 1].mean())
    # All classes score the same: no temperature changes a probability.
    if gap <= 0:
        return 1.0
    low, high = -math.log(_WIDEST), math.log(_WIDEST)  # bounds of x = log(β · gap)
    at = 0.0 if start is None else max(low, min(high, math.log(gap / start)))
    for _ in range(_STEPS):
        beta = math.exp(at) / gap
        mean, square = _compute_logit_moments(z, beta)
        excess = float(mean.mean()) - target_logit
        # The derivative increases, so its sign tells on which side its zero lies.
        low, high = (at, high) if excess < 0 else (low, at)
        variance = float((square - mean.square()).mean())
        slope = beta * variance  # slope of the mean logit in x
        # Without spread there is no Newton step: an infinite one makes the search bisect.
        step = -excess / slope if slope > 0 else math.inf
        # Bisect where Newton's step would leave the bounds.
        following = at + step if low < at + step < high else (low + high) / 2
        step, at = following - at, following
        if abs(step) < _CLOSE:
            break
    return gap / math.exp(at)


def _compute_logit_moments(z: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Compute mean and mean square of each row's logits under its softmax probabilities."""
    means, squares = z.new_empty(len(z)), z.new_empty(len(z))
    for at in range(0, len(z), _ROWS):
        part = slice(at, at + _ROWS)
        block = z[part]
        probability = (beta * block).softmax(1).mul_(block)
        means[part] = probability.sum(1)
        squares[part] = probability.mul_(block).sum(1)
    return means, squares


def _find_rows_for_temperature_fit(logits: Tensor, targets: Tensor) -> Tensor:
    """Find the rows of `logits` usable to fit a temperature: target and another class are
    finite.
    """
    least, greatest = logits.aminmax(dim=1)
    # Most logits are all finite, which one pass over them shows; the rest takes four.
    usable = torch.isfinite(least) & torch.isfinite(greatest)
    usable &= logits.shape[1] > 1
    # A row with an infinite maximum has no finite differences to it; one with NaN has none at all.
    doubtful = (~usable & torch.isfinite(greatest)).nonzero().squeeze(1)
    possible = logits[doubtful] > -math.inf
    own_possible = possible.gather(1, targets[doubtful, None]).squeeze(1)
    usable[doubtful] = own_possible & (possible.sum(1) > 1)
    return usable.nonzero().squeeze(1)


def choose_softmax_temperature_and_source(
    held_out: HeldOutLogits,
    left_out: Callable[[], tuple[Tensor, Tensor] | None],
    parent: Temperature | None,
) -> Temperature:
    """Choose a version's softmax temperature: fit it to the best source with enough images.

    In order: held-out logits; left-out scores of training images; the parent's temperature; 1.

    Args:
        held_out: logits of this version, over all tasks.
        left_out: returns scores [n, classes] and rows int64 [n], see
            `Method.compute_left_out_scores`.
        parent: the parent's temperature; None if there is no parent.
    """
    if len(held_out.targets) >= LEAST_TEMPERATURE_IMAGES:
        value = fit_softmax_temperature(held_out.values, held_out.targets)
        return Temperature(value=value, source="held-out", images=len(held_out.targets))
    # Only now: most versions have enough held-out images.
    scores = left_out()
    if scores is not None and len(scores[1]) >= LEAST_TEMPERATURE_IMAGES:
        value = fit_softmax_temperature(*scores)
        return Temperature(value=value, source="left-out", images=len(scores[1]))
    if parent is not None and parent.source != "none":
        return Temperature(value=parent.value, source="parent")
    return Temperature(value=1.0, source="none")


def _compute_mean_smoothed_target_logit(z: Tensor, impossible: Tensor, targets: Tensor) -> float:
    """Return the mean logit of the targets.

    An image's class has the weight (n + 1) / (n + 2); the other classes share the remainder.

    Args:
        z: logits [n, classes]; 0 at impossible classes.
        impossible: bool [n, classes].
        targets: int64 [n].
    """
    n = len(z)
    right = z.gather(1, targets[:, None]).squeeze(1)
    # Not divided by 0: `_find_rows_for_temperature_fit` requires another possible class.
    other_mean = (z.sum(1) - right) / (z.shape[1] - impossible.sum(1) - 1)
    return float(((n + 1) * right + other_mean).mean() / (n + 2))
