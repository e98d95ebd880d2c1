"""Threshold of the probability from which on an answer is sure, for a promised precision.

Held-out images are sorted by the probability of their answer, greatest first. Let r of the first n
be right. The precision exceeds the promise with 95 % confidence if so few errors would be
improbable otherwise (Clopper & Pearson 1934, one-sided). Choosing the best of many such tests would
break the promise more often than that. The numbers n are therefore fixed beforehand, by the promise
and the number of images alone. They are tested in order until one fails, and the last that passed
is used (fixed-sequence testing; Angelopoulos et al. 2021, arXiv 2110.01052).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.contract.figures import CoveragePoint

Curve = Sequence[CoveragePoint]
"""Points in the order of rising numbers of images."""

RISK = 0.05
_STEPS = 20
"""Approximate number of tests from the first number to all images."""
_LATEST_SHARE, _LATEST_TIMES = 3, 4
"""The first test uses a third of the images, but at most four times the least number needed."""


@dataclass(frozen=True)
class ConfidenceThreshold:
    """Confidence threshold of sure answers, and its coverage and precision on held-out images.

    Attributes:
        threshold: least probability of a sure answer; None if no answer is sure.
        covered: held-out images with a sure answer.
        right: covered images that are classified correctly.
    """

    threshold: float | None
    covered: int
    right: int


def compute_images_required_for_promised_precision(precision: float) -> int:
    """Compute the least number of held-out images to promise a precision, if all are right.

    That is the smallest n with precision to the power of n ≤ `RISK`.
    """
    # Where the quotient is whole, rounding must not add an image.
    return math.ceil(math.log(RISK) / math.log(precision) - 1e-9)


def choose_confidence_threshold(curve: Curve, precision: float) -> ConfidenceThreshold:
    """Choose the confidence threshold with the greatest coverage that keeps the promised
    precision.
    """
    images = curve[-1].images if curve else 0
    chosen, next_test = (
        ConfidenceThreshold(None, 0, 0),
        _compute_images_of_first_threshold_test(images, precision),
    )
    for point in curve:
        # Not every number of images has a point: the first from a planned number on is tested.
        if point.images < next_test:
            continue
        if not is_share_significantly_above(point.right, point.images, precision):
            break
        chosen = ConfidenceThreshold(point.probability, point.images, point.right)
        next_test = point.images + max(1, images // _STEPS)
    return chosen


def is_share_significantly_above(right: int, images: int, precision: float) -> bool:
    """Return True if the one-sided 95 % lower bound of a share is at least `precision`."""
    errors, error_share = images - right, 1 - precision
    if not images or errors > error_share * images:
        return False
    total = 0.0
    for k in range(errors, -1, -1):  # P(at most `errors` of `images`), greatest term first
        ways = math.lgamma(images + 1) - math.lgamma(k + 1) - math.lgamma(images - k + 1)
        term = math.exp(ways + k * math.log(error_share) + (images - k) * math.log(precision))
        total += term
        if total > RISK or term < 1e-12:
            break
    # The same tolerance as in `compute_images_required_for_promised_precision`: that many images,
    # all right, must suffice.
    return total <= RISK + 1e-12


def _compute_images_of_first_threshold_test(images: int, precision: float) -> int:
    needed = compute_images_required_for_promised_precision(precision)
    return max(needed, min(images // _LATEST_SHARE, _LATEST_TIMES * needed))
