"""The debiased expected calibration error of probabilities, with its interval.

Images are sorted by the probability of their predicted class and cut into bins of equal numbers.
The raw error is the mean over images of |mean probability - share of correct predictions| of their
bin (Naeini et al. 2015; Nguyen & O'Connor 2015). It is above 0 even where every probability is
right, since few images scatter. The mean error of predictions drawn from the probabilities
themselves is therefore subtracted (Bröcker 2012; Kumar et al. 2019). So the error of a perfectly
calibrated model is 0 on average, and may be below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.contract.figures import Calibration, CalibrationBin, CoveragePoint
from core.learning.evaluation.calibration.held_out import HeldOutLogits
from core.learning.evaluation.calibration.temperature import fit_softmax_temperature

LEAST_OF_BIN = 50
MOST_BINS = 15
POINTS = 100
"""Maximum number of points on the curve of precision over coverage."""
DRAWS = 200
"""Number of draws from the version's own probabilities, and of resamples for the interval."""
_SEED = 0
# The 97.5 % quantile of the standard normal distribution: 2.5 % lie beyond it on each side.
_95_PERCENT = 1.959964
_ROWS = 256
"""Images whose probabilities are computed at once, so that the data fits the processor's cache."""

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class BinnedPredictions:
    """Predictions sorted by their probability and cut into bins, for calibration.

    Attributes:
        probabilities: float64 [N], ascending.
        right: bool [N], correct predictions.
        starts: int64, the first index of each bin.
    """

    probabilities: Floats
    right: Mask
    starts: NDArray[np.int64]

    def compute_raw_calibration_error(self, gaps: Floats) -> float:
        """Compute the raw calibration error from gaps [N] between probability and correctness."""
        return float(np.abs(np.add.reduceat(gaps, self.starts)).sum() / len(self.probabilities))


def measure_version_calibration(logits: HeldOutLogits, temperature: float) -> Calibration | None:
    """Measure a version's calibration on images that were not used to fit its temperature.

    Each half of the images is predicted with the temperature fitted to the other half. The halves
    depend only on the number of images. The curve of precision over coverage uses the version's own
    temperature.

    Returns:
        None with fewer than `LEAST_OF_BIN` images.
    """
    n = len(logits.targets)
    if n < LEAST_OF_BIN:
        return None
    # A fixed seed: two versions measured on the same images are split alike.
    order = torch.randperm(n, generator=torch.Generator().manual_seed(_SEED))
    halves = order[: n // 2], order[n // 2 :]
    probabilities, right = np.empty(n), np.empty(n, bool)
    for half, other_half in (halves, halves[::-1]):
        of_other = fit_softmax_temperature(
            logits.values[other_half], logits.targets[other_half], start=temperature
        )
        probabilities[half], right[half] = _compute_top_probability_and_correctness(
            logits, half, of_other
        )
    curve = build_precision_curve(
        *_compute_top_probability_and_correctness(logits, torch.arange(n), temperature)
    )
    return compute_calibration_error(probabilities, right).model_copy(update={"curve": curve})


def _compute_top_probability_and_correctness(
    logits: HeldOutLogits, rows: Tensor, temperature: float
) -> tuple[Floats, Mask]:
    """Predict selected images from logits: return each prediction's probability and correctness."""
    probabilities, predicted = (
        torch.empty(len(rows), dtype=torch.float64),
        torch.empty(len(rows), dtype=torch.int64),
    )
    for at in range(0, len(rows), _ROWS):
        part = slice(at, at + _ROWS)
        probabilities[part], predicted[part] = (
            (logits.values[rows[part]].double() / temperature).softmax(1).max(1)
        )
    return probabilities.numpy(), (predicted == logits.targets[rows]).numpy()


def build_precision_curve(probabilities: Floats, right: Mask) -> list[CoveragePoint]:
    """Build a curve of precision over coverage by falling probability, of at most `POINTS` points.

    Each has a lower bound of probability, the number of images above it, and how many of them are
    right. The bound lies midway between two images, so that rounding moves none across; images of
    equal probability stay together.
    """
    order, n = np.argsort(-probabilities, kind="stable"), len(probabilities)
    descending, rights = probabilities[order], np.cumsum(right[order])
    following = np.append(descending[1:], 0.0)
    ends = np.flatnonzero(following < descending)  # the last image of each probability
    # Rounded up in integers, so that the last point always covers all images.
    spaced = -(-np.arange(1, POINTS + 1) * n // POINTS) - 1
    chosen = np.unique(ends[np.searchsorted(ends, spaced)])
    middle = np.where(
        chosen == n - 1, descending[chosen], (descending[chosen] + following[chosen]) / 2
    )
    return [
        CoveragePoint(probability=float(p), images=int(i) + 1, right=int(rights[i]))
        for p, i in zip(middle, chosen, strict=True)
    ]


def compute_calibration_error(probabilities: Floats, right: Mask, seed: int = _SEED) -> Calibration:
    """Compute the calibration error of predictions, with its confidence interval and bins.

    Args:
        probabilities: float64 [N] of the predicted classes, at least one.
        right: bool [N], correct predictions.
        seed: of the draws and resamples.
    """
    bins = sort_predictions_into_probability_bins(probabilities, right)
    gaps = bins.probabilities - bins.right
    raw, n, rng = bins.compute_raw_calibration_error(gaps), len(gaps), np.random.default_rng(seed)
    # Predictions drawn from the probabilities themselves, as of a perfectly calibrated model.
    drawn = [
        bins.compute_raw_calibration_error(
            bins.probabilities - (rng.random(n) < bins.probabilities)
        )
        for _ in range(DRAWS)
    ]
    # Bootstrap: a draw with replacement as the number of times that each image is drawn.
    resampled = [
        bins.compute_raw_calibration_error(gaps * np.bincount(rng.integers(0, n, n), minlength=n))
        for _ in range(DRAWS)
    ]
    # The larger of both: draws vary the outcomes, resamples the images.
    error, spread = raw - float(np.mean(drawn)), max(float(np.std(drawn)), float(np.std(resampled)))
    # Where bins are far off, chance adds nothing, and the subtracted bias is too large. Resamples
    # estimate how much chance added.
    upper = max(error, 2 * raw - float(np.mean(resampled)))
    return Calibration(
        error=error,
        low=error - _95_PERCENT * spread,
        high=upper + _95_PERCENT * spread,
        raw=raw,
        images=n,
        bins=_summarize_calibration_bins(bins),
    )


def sort_predictions_into_probability_bins(probabilities: Floats, right: Mask) -> BinnedPredictions:
    """Sort predictions by probability into at most `MOST_BINS` bins.

    Each bin has `LEAST_OF_BIN` images or more, unless there are fewer in total.
    """
    order, n = np.argsort(probabilities, kind="stable"), len(probabilities)
    bins = min(MOST_BINS, max(1, n // LEAST_OF_BIN))
    return BinnedPredictions(probabilities[order], right[order], np.arange(bins) * n // bins)


def _summarize_calibration_bins(predictions: BinnedPredictions) -> list[CalibrationBin]:
    """Return each calibration bin's number of images, mean probability and correct predictions."""
    parts = zip(
        np.split(predictions.probabilities, predictions.starts[1:]),
        np.split(predictions.right, predictions.starts[1:]),
        strict=True,
    )
    return [
        CalibrationBin(
            images=len(right), probability=float(probabilities.mean()), right=int(right.sum())
        )
        for probabilities, right in parts
    ]
