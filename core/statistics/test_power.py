"""Power of the gate's test: the losses that a number of held-out images can reveal.

A version turns a share `lost` of the images from right to wrong, and a share `gained` from wrong to
right. The gate detects a loss if McNemar's exact one-sided p is below `SIGNIFICANT` and the net
share exceeds the limit. Both are computed from the binomial distributions, because no approximation
holds for a few dozen images.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from core.statistics.flips import compute_one_sided_mcnemar_p

SIGNIFICANT = 0.01
"""p below which the gate takes a loss as real."""
DETECTED = 0.95
"""Probability of detection from which on a loss counts as visible."""
GAINED = 0.02
"""Share of the images that an update is assumed to gain while it loses others."""
_STEP = 0.001
_SPREAD = 8.0
"""Standard deviations around the mean beyond which probabilities are neglected."""
_ROUND = 10
_MOST_IMAGES = 5_000
"""Greater numbers of images are replaced by this one.

Beyond it, further images change the result little, and the sums become long.
"""


@dataclass(frozen=True)
class DetectableLossAndNeededImages:
    """The smallest loss of images that the gate can detect, and how many more images halve it.

    Attributes:
        images: held-out images that were compared.
        loss: smallest share of lost images that is detected in 95 of 100 cases; None if not even
            the loss of all is.
        more: number of further images that would reveal half of that loss.
        then: loss that would be detected with them.
    """

    images: int
    loss: float | None
    more: int | None
    then: float | None


@lru_cache(maxsize=256)
def compute_detectable_loss_and_needed_images(
    images: int, limit: float
) -> DetectableLossAndNeededImages:
    """Find the loss that the gate detects with `images` held-out images, and the images for half of
    it.
    """
    loss = find_smallest_detectable_loss(images, limit)
    # A loss that the gains and the limit nearly cancel is not detected with any number of images.
    goal = max(limit + 2 * GAINED, (1.0 if loss is None else loss) / 2)
    # No number of images reveals a notably smaller loss.
    if loss is not None and loss - goal < _STEP:
        return DetectableLossAndNeededImages(images, loss, None, None)
    needed = _find_image_count_to_detect_loss(goal, limit, images)
    if needed is None:
        return DetectableLossAndNeededImages(images, loss, None, None)
    return DetectableLossAndNeededImages(
        images, loss, needed - images, find_smallest_detectable_loss(needed, limit)
    )


def find_smallest_detectable_loss(
    images: int, limit: float, gained: float = GAINED
) -> float | None:
    """Find the smallest share of lost images that is detected reliably, in steps of 0.001, or
    None.
    """
    images = min(images, _MOST_IMAGES)
    # The probability rises with the loss, so that bisection finds the smallest one.
    low, high = 0, math.floor((1.0 - gained) / _STEP)
    if compute_loss_detection_probability(images, high * _STEP, gained, limit) < DETECTED:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if compute_loss_detection_probability(images, middle * _STEP, gained, limit) < DETECTED:
            low = middle
        else:
            high = middle
    return round(high * _STEP, 3)


def compute_loss_detection_probability(
    images: int, lost: float, gained: float, limit: float
) -> float:
    """Compute the probability that the gate detects a loss of images.

    Args:
        images: held-out images that are compared.
        lost, gained: probability of an image to turn wrong, and to turn right; their sum is at most
            1.
        limit: net share of images that may be lost.
    """
    flipped = lost + gained
    if not images or flipped <= 0:
        return 0.0
    mean, spread = images * flipped, math.sqrt(images * flipped * (1 - flipped))
    # Counts further from the mean are too unlikely to change the sum.
    first = max(0, math.floor(mean - _SPREAD * spread - 1))
    last = min(images, math.ceil(mean + _SPREAD * spread + 1))
    total = 0.0
    for flips in range(first, last + 1):
        most_gains = _find_most_gains_of_detected_loss(flips, limit * images)
        if most_gains >= 0:
            total += _compute_binomial_probability(flips, images, flipped) * _compute_binomial_tail(
                most_gains, flips, gained / flipped
            )
    # Rounding may carry the sum slightly above 1.
    return min(1.0, total)


def _find_image_count_to_detect_loss(loss: float, limit: float, above: int) -> int | None:
    """Find the number of images above `above`, in tens, with which a loss is detected.

    None means more than `_MOST_IMAGES`.
    """
    # Not from 0, which doubling would not change.
    low, high = above, max(_ROUND, above)
    while compute_loss_detection_probability(high, loss, GAINED, limit) < DETECTED:
        low, high = high, high * 2
        if high > _MOST_IMAGES:
            return None
    while high - low > _ROUND:
        middle = (low + high) // 2
        if compute_loss_detection_probability(middle, loss, GAINED, limit) < DETECTED:
            low = middle
        else:
            high = middle
    return above + math.ceil((high - above) / _ROUND) * _ROUND


def _find_most_gains_of_detected_loss(flips: int, net_loss_limit: float) -> int:
    """Find the most gains among `flips` with which a loss is still detected, or -1.

    The loss is detected if it is significant and its net number exceeds `net_loss_limit`.
    """
    return min(
        _find_most_gains_of_significant_loss(flips), math.ceil((flips - net_loss_limit) / 2) - 1
    )


# Each step of a bisection asks for nearly the same numbers of flips.
@lru_cache(maxsize=1 << 15)
def _find_most_gains_of_significant_loss(flips: int) -> int:
    # A guess by the normal approximation; the loops below make it exact.
    guess = max(-1, math.floor(flips / 2 - 1.3 * math.sqrt(flips)))
    while guess >= 0 and compute_one_sided_mcnemar_p(flips - guess, guess) >= SIGNIFICANT:
        guess -= 1
    while (
        guess + 1 <= flips
        and compute_one_sided_mcnemar_p(flips - guess - 1, guess + 1) < SIGNIFICANT
    ):
        guess += 1
    return guess


def _compute_binomial_probability(k: int, n: int, p: float) -> float:
    """Compute the binomial probability P(X = k)."""
    if p <= 0.0 or p >= 1.0:
        return float(k == (0 if p <= 0.0 else n))
    logarithm = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    # log1p, because log(1 - p) loses the digits of a small p.
    return math.exp(logarithm + k * math.log(p) + (n - k) * math.log1p(-p))


def _compute_binomial_tail(k: int, n: int, p: float) -> float:
    """Compute the binomial tail probability P(X ≤ k).

    The smaller tail is summed from its largest term on, each term computed from the previous one.
    """
    if k >= n or p <= 0.0:
        return 1.0
    odds = p / (1.0 - p)
    if k <= n * p:
        total = term = _compute_binomial_probability(k, n, p)
        # Stops at terms below the precision of a float; those after them are smaller still.
        for i in range(k, 0, -1):
            term *= i / ((n - i + 1) * odds)
            total += term
            if term < total * 1e-16:
                break
        return total
    total = term = _compute_binomial_probability(k + 1, n, p)
    for i in range(k + 1, n):
        term *= (n - i) * odds / (i + 1)
        total += term
        if term < total * 1e-16:
            break
    return 1.0 - total
