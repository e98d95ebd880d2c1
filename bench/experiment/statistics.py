"""Means with intervals, correlations and rank agreement; None where a figure is undefined, never 0.

Correlations work along the last axis of arrays in which NaN is a missing value, and give NaN where
they are undefined: so one call serves all draws of a bootstrap. Repetitions are the class orders
and seeds. Several methods are measured on the same ones, so their values are not independent: whole
repetitions are drawn.
"""

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

LEVEL = 0.95
RESAMPLES = 2000
MIN_POINTS = 3
Array = npt.NDArray[np.float64]
Interval = tuple[float, float]
Figure = tuple[float | None, Interval | None]
"""A statistic and its 95 % interval."""


def compute_standard_deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1); None for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def compute_t_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of a mean by Student's t; None for fewer than two values."""
    deviation = compute_standard_deviation(values)
    if deviation is None:
        return None
    n = len(values)
    half = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * deviation / math.sqrt(n)
    middle = statistics.fmean(values)
    return middle - half, middle + half


def compute_mean_with_interval(values: Sequence[float]) -> Figure:
    """Return the mean of the values that are not NaN, with its 95 % t-interval."""
    defined = [float(value) for value in values if not math.isnan(value)]
    return (statistics.fmean(defined) if defined else None), compute_t_interval(defined)


def compute_pearson_correlation(x: Array, y: Array) -> Array:
    """Return Pearson's linear correlation [...] of x and y [..., n].

    NaN for fewer than three points, or when x or y does not vary.
    """
    x, y, both = _mask_unpaired_values(x, y)
    count = both.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = (np.where(both, v - (v.sum(-1) / count)[..., None], 0) for v in (x, y))
        r = (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.where(
        (count >= MIN_POINTS) & _has_varying_values(x, both) & _has_varying_values(y, both),
        np.clip(r, -1, 1),
        np.nan,
    )


def compute_spearman_correlation(x: Array, y: Array) -> Array:
    """Return Spearman's rank correlation, with ties at their mean rank."""
    x, y, both = _mask_unpaired_values(x, y)
    # Missing points rank last, where they change no other rank.
    x, y = (stats.rankdata(np.where(both, v, np.inf), axis=-1) for v in (x, y))
    return compute_pearson_correlation(np.where(both, x, np.nan), y)


def compute_kendall_tau(x: Array, y: Array) -> Array:
    """Return Kendall's tau-b [...] of two rankings [..., n]; NaN if one of them is constant."""
    upper = np.triu_indices(np.shape(x)[-1], 1)
    a, b = (np.sign(v[..., upper[0]] - v[..., upper[1]]) for v in (np.asarray(x), np.asarray(y)))
    both = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(both, a, 0), np.where(both, b, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)))


def bootstrap_statistic_interval(
    n: int, statistic: Callable[[npt.NDArray[np.int64]], Array], seed: int = 0
) -> Figure:
    """Return a statistic of n repetitions, with its 95 % bootstrap interval.

    Args:
        statistic: values [draws] for repetitions [draws, n], as numbers from 0.

    The interval is None for fewer than two repetitions, or when half of the draws or more are
    undefined; fewer undefined draws are left out.
    """
    value = float(statistic(np.arange(n)[None])[0]) if n else math.nan
    if n < 2 or math.isnan(value):
        return (None if math.isnan(value) else value), None
    resampled_values = statistic(np.random.default_rng(seed).integers(n, size=(RESAMPLES, n)))
    resampled_values = resampled_values[np.isfinite(resampled_values)]
    if len(resampled_values) <= RESAMPLES / 2:
        return value, None
    low, high = np.quantile(resampled_values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return value, (float(low), float(high))


def _mask_unpaired_values(x: Array, y: Array) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Replace values missing in either of two samples by 0; return both, and a mask of the others."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    both = np.isfinite(x) & np.isfinite(y)
    return np.where(both, x, 0), np.where(both, y, 0), both


def _has_varying_values(x: Array, present_mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return np.asarray(
        np.where(present_mask, x, -np.inf).max(-1) > np.where(present_mask, x, np.inf).min(-1)
    )
