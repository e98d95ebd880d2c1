"""Power of the gate's test: the losses that a number of held-out images can show.

A version turns a share `lost` of the images from right to wrong and a share `gained` from wrong to right. The gate sees
that if McNemar's exact one-sided p is below `SIGNIFICANT` and the net share exceeds the limit. Both are computed
from the binomial distributions themselves: for a few dozen images no approximation holds.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from core.flips import mcnemar_worse

SIGNIFICANT = 0.01
"""p below which the gate believes in a loss."""
DETECTED = 0.95
"""Share of the cases in which a loss is seen that counts as visible."""
GAINED = 0.02
"""Share of the images that an update is assumed to gain while it loses others."""
_STEP = 0.001
_SPREAD = 8.0
"""Standard deviations around the mean beyond which a probability is left out."""
_ROUND = 10
_MOST_IMAGES = 5_000
"""More images are taken for as many: what they show changes little from there on, and the sums get long."""


@dataclass(frozen=True)
class Visible:
    """The smallest loss that a number of images shows, and what more images would show.

    Attributes:
        images: held-out images that were compared.
        loss: smallest share of lost images that is seen in 95 of 100 cases; None: not even a loss of all.
        more: further images that would show half of it; then: the loss that would be seen with them.
    """

    images: int
    loss: float | None
    more: int | None
    then: float | None


@lru_cache(maxsize=256)
def find_visible(images: int, limit: float) -> Visible:
    """Find what `images` held-out images can show at this limit, and how many more would show half of that."""
    loss = find_visible_loss(images, limit)
    goal = max(limit + 2 * GAINED, (1.0 if loss is None else loss) / 2)
    if loss is not None and loss - goal < _STEP:
        return Visible(images, loss, None, None)
    needed = _find_images(goal, limit, images)
    if needed is None:
        return Visible(images, loss, None, None)
    return Visible(images, loss, needed - images, find_visible_loss(needed, limit))


def find_visible_loss(images: int, limit: float, gained: float = GAINED) -> float | None:
    """Find the smallest share of lost images that is detected; None: no loss is. In steps of a thousandth."""
    images = min(images, _MOST_IMAGES)
    low, high = 0, math.floor((1.0 - gained) / _STEP)
    if detection(images, high * _STEP, gained, limit) < DETECTED:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if detection(images, middle * _STEP, gained, limit) < DETECTED:
            low = middle
        else:
            high = middle
    return round(high * _STEP, 3)


def detection(images: int, lost: float, gained: float, limit: float) -> float:
    """Compute the probability that the gate sees a loss.

    Args:
        images: held-out images that are compared.
        lost, gained: probability of an image to turn wrong, and to turn right; their sum is at most 1.
        limit: net share of images that may be lost.
    """
    flipped = lost + gained
    if not images or flipped <= 0:
        return 0.0
    mean, spread = images * flipped, math.sqrt(images * flipped * (1 - flipped))
    first = max(0, math.floor(mean - _SPREAD * spread - 1))
    last = min(images, math.ceil(mean + _SPREAD * spread + 1))
    total = 0.0
    for flips in range(first, last + 1):
        most = _most_gains(flips, limit * images)
        if most >= 0:
            total += _probability(flips, images, flipped) * _at_most(most, flips, gained / flipped)
    return min(1.0, total)


def _find_images(loss: float, limit: float, above: int) -> int | None:
    """The smallest number of images above `above` that shows a loss, in tens; None: beyond what is searched."""
    low, high = above, max(_ROUND, above)
    while detection(high, loss, GAINED, limit) < DETECTED:
        low, high = high, high * 2
        if high > _MOST_IMAGES:
            return None
    while high - low > _ROUND:
        middle = (low + high) // 2
        if detection(middle, loss, GAINED, limit) < DETECTED:
            low = middle
        else:
            high = middle
    return above + math.ceil((high - above) / _ROUND) * _ROUND


def _most_gains(flips: int, least: float) -> int:
    """The most gains among `flips` at which the loss is significant and its net number exceeds `least`; -1: none."""
    return min(_most_significant(flips), math.ceil((flips - least) / 2) - 1)


@lru_cache(maxsize=1 << 15)
def _most_significant(flips: int) -> int:
    guess = max(-1, math.floor(flips / 2 - 1.3 * math.sqrt(flips)))
    while guess >= 0 and mcnemar_worse(flips - guess, guess) >= SIGNIFICANT:
        guess -= 1
    while guess + 1 <= flips and mcnemar_worse(flips - guess - 1, guess + 1) < SIGNIFICANT:
        guess += 1
    return guess


def _probability(k: int, n: int, p: float) -> float:
    """P(X = k) of a binomial."""
    if p <= 0.0 or p >= 1.0:
        return float(k == (0 if p <= 0.0 else n))
    logarithm = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(logarithm + k * math.log(p) + (n - k) * math.log1p(-p))


def _at_most(k: int, n: int, p: float) -> float:
    """P(X ≤ k) of a binomial: the smaller tail is summed from its largest term on, each from the one before."""
    if k >= n or p <= 0.0:
        return 1.0
    odds = p / (1.0 - p)
    if k <= n * p:
        total = term = _probability(k, n, p)
        for i in range(k, 0, -1):
            term *= i / ((n - i + 1) * odds)
            total += term
            if term < total * 1e-16:
                break
        return total
    total = term = _probability(k + 1, n, p)
    for i in range(k + 1, n):
        term *= (n - i) * odds / (i + 1)
        total += term
        if term < total * 1e-16:
            break
    return 1.0 - total
