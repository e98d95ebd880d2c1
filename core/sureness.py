"""From which probability on an answer is called sure, so that a promised share of the sure answers is right.

Held-out images are sorted by the probability of their answer, the greatest first. Of the first n of them, of which
r are right, the precision is above the promise with 95 % confidence where so few errors are improbable without
(Clopper & Pearson 1934, one-sided). A threshold that is picked as the best of many such tests would break the promise
more often than that. So the numbers n are fixed beforehand, by the promise and the number of images alone, and tested
one after the other until one fails; the last that passed is taken (fixed-sequence testing; Angelopoulos et al. 2021,
arXiv 2110.01052).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.protocol.figures import CoveragePoint

Curve = Sequence[CoveragePoint]
"""By rising numbers of images."""

RISK = 0.05
_STEPS = 20
"""Tests from the first number to all images, about."""
_LATEST_SHARE, _LATEST_TIMES = 3, 4
"""The first test is of a third of the images, but at most of four times as many as are needed without an error."""


@dataclass(frozen=True)
class Sure:
    """From `threshold` on answers are sure: `covered` of the held-out images, `right` of them; None: none are."""

    threshold: float | None
    covered: int
    right: int


def needed_images(precision: float) -> int:
    """Held-out images that a promise needs at least, all of them right: n with precision to the n ≤ `RISK`."""
    return math.ceil(math.log(RISK) / math.log(precision) - 1e-9)


def choose_threshold(curve: Curve, precision: float) -> Sure:
    """The threshold of the greatest coverage that keeps the promise."""
    images = curve[-1].images if curve else 0
    found, following = Sure(None, 0, 0), _first_test(images, precision)
    for point in curve:
        if point.images < following:
            continue
        if not is_above(point.right, point.images, precision):
            break
        found = Sure(point.probability, point.images, point.right)
        following = point.images + max(1, images // _STEPS)
    return found


def is_above(right: int, images: int, precision: float) -> bool:
    """Return True if the one-sided 95 % lower bound of a share is `precision` or more."""
    errors, wrong = images - right, 1 - precision
    if not images or errors > wrong * images:
        return False
    total = 0.0
    for k in range(errors, -1, -1):  # P(at most `errors` of `images`), the greatest term first
        ways = math.lgamma(images + 1) - math.lgamma(k + 1) - math.lgamma(images - k + 1)
        term = math.exp(ways + k * math.log(wrong) + (images - k) * math.log(precision))
        total += term
        if total > RISK or term < 1e-12:
            break
    return total <= RISK + 1e-12


def _first_test(images: int, precision: float) -> int:
    needed = needed_images(precision)
    return max(needed, min(images // _LATEST_SHARE, _LATEST_TIMES * needed))
