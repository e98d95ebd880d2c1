"""Comparison of two versions on the same images: counts of changed answers, and their significance.

An image that the old version classifies correctly and the new one wrongly is a negative flip. The
share of negative flips in all images is the negative flip rate, NFR (Yan et al., Positive-Congruent
Training, CVPR 2021).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.int64]
Z95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True)
class PredictionFlipCounts:
    """Counts of images by which of two versions classifies them correctly (prediction flips).

    Attributes:
        both_right: images that both versions classify correctly.
        negative: images that only the old version classifies correctly.
        positive: images that only the new version classifies correctly.
        both_wrong: images that neither version classifies correctly.
    """

    both_right: int = 0
    negative: int = 0
    positive: int = 0
    both_wrong: int = 0

    @property
    def n(self) -> int:
        """The number of all compared images."""
        return self.both_right + self.negative + self.positive + self.both_wrong

    @property
    def negative_flip_rate(self) -> float | None:
        """The negative flip rate: images that turned wrong, as a share in [0, 1]; None without
        images.
        """
        return self.negative / self.n if self.n else None

    def __add__(self, other: "PredictionFlipCounts") -> "PredictionFlipCounts":
        return PredictionFlipCounts(
            self.both_right + other.both_right,
            self.negative + other.negative,
            self.positive + other.positive,
            self.both_wrong + other.both_wrong,
        )


def count_prediction_flips(old: Mask, new: Mask) -> PredictionFlipCounts:
    """Count prediction flips between two versions: images right in both, one or none of them.

    Args:
        old, new: bool [N], true for images that the old or new version classifies correctly.
    """
    both, either = int((old & new).sum()), int((old | new).sum())
    return PredictionFlipCounts(
        both, int((old & ~new).sum()), int((new & ~old).sum()), len(old) - either
    )


def count_prediction_flips_by_group(
    groups: Groups, group_count: int, old: Mask, new: Mask
) -> Groups:
    """Count prediction flips between two versions in each group of images.

    Args:
        groups: int64 [N], the group of each image.
        group_count: number of groups; they are numbered from 0 to `group_count` - 1.
        old, new: bool [N], as in `count_prediction_flips`.

    Returns:
        int64 [most, 4], in the order of the fields of `PredictionFlipCounts`.
    """
    cells = (old & new, old & ~new, new & ~old, ~old & ~new)
    return np.stack([np.bincount(groups[cell], minlength=group_count) for cell in cells], 1).astype(
        np.int64
    )


def compute_wilson_interval(successes: int, n: int) -> tuple[float, float] | None:
    """Compute the 95 % Wilson confidence interval of a share in [0, 1], or None without trials."""
    if not n:
        return None
    share, z2 = successes / n, Z95 * Z95
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    # Rounding would leave a tiny number where a bound is exactly 0 or 1.
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    return low, 1.0 if successes == n else min(1.0, middle + half)


def compute_two_sided_mcnemar_p(negative: int, positive: int) -> float:
    """Compute p of McNemar's exact two-sided test that both kinds of flips are equally likely.

    p is 2 · P(X ≤ min) of a binomial with n = negative + positive and ½, at most 1 (McNemar 1947,
    Liddell 1976).
    """
    n, fewer_flips = negative + positive, min(negative, positive)
    # P(X ≤ fewer) is ½ or more here, so p is 1 without a sum.
    if 2 * fewer_flips >= n - 1:
        return 1.0
    return min(1.0, 2 * _compute_fair_binomial_tail(fewer_flips, n))


def compute_one_sided_mcnemar_p(negative: int, positive: int) -> float:
    """Compute p of McNemar's exact one-sided test that losses do not outnumber gains.

    The null hypothesis is that negative flips are not more probable than positive ones. p is P(X ≥
    negative) of a binomial with n = negative + positive and ½.
    """
    n = negative + positive
    # The sum is over the smaller of the two tails: it is shorter, and no digits are lost.
    if 2 * positive < n:
        return _compute_fair_binomial_tail(positive, n)
    return 1.0 - _compute_fair_binomial_tail(negative - 1, n)


def _compute_fair_binomial_tail(k: int, n: int) -> float:
    """Return P(X ≤ k) of a binomial with n and ½, for k < n / 2; 0 for k = -1.

    Terms are summed from the largest on, each computed from the previous one, so that no number
    leaves the range of a float.
    """
    if k < 0:
        return 0.0
    logarithm = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2)
    total = term = 1.0
    for i in range(k, 0, -1):
        term *= i / (n - i + 1)
        total += term
        # Further terms are too small to change the sum.
        if term < total * 1e-18:
            break
    return total * math.exp(logarithm)
