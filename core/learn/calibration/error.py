"""The debiased expected calibration error of probabilities, with its interval.

Images are sorted by the probability of their answer and cut into bins of equal numbers. The raw error is the mean
over images of |mean probability - share of right answers| of their bin (Naeini et al. 2015; Nguyen & O'Connor 2015). It
is above 0 even where every probability is right, since few images scatter: the mean of what draws from the
probabilities themselves give is taken off (Bröcker 2012; Kumar et al. 2019). So the error of a model without fault is 0
on average, and may be below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.learn.calibration.held_out import Logits
from core.learn.calibration.temperature import fit_temperature
from core.protocol.figures import Calibration, CalibrationBin, CoveragePoint

LEAST_OF_BIN = 50
MOST_BINS = 15
POINTS = 100
"""Of the curve of precision over coverage."""
DRAWS = 200
"""From the version's own probabilities, and resamples for the interval."""
_SEED = 0
_95_PERCENT = 1.959964
_ROWS = 256
"""Images whose probabilities are taken at once: what they need stays in the processor's cache."""

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Sorted:
    """The probability of N answers, rising; which of them are right; where the bins start."""

    probabilities: Floats
    right: Mask
    starts: NDArray[np.int64]

    def error_of(self, gaps: Floats) -> float:
        """The raw error by the gaps [N] between probability and rightness, image by image."""
        return float(np.abs(np.add.reduceat(gaps, self.starts)).sum() / len(self.probabilities))


def measure_calibration(logits: Logits, temperature: float) -> Calibration | None:
    """Measure calibration by images that no temperature was fitted to, and the curve of precision
    over coverage by the version's own temperature; None of fewer than `LEAST_OF_BIN` images.

    Each half of the images is answered with the temperature of the other half. The halves are drawn once for all.
    """
    n = len(logits.targets)
    if n < LEAST_OF_BIN:
        return None
    order = torch.randperm(n, generator=torch.Generator().manual_seed(_SEED))
    halves = order[: n // 2], order[n // 2 :]
    probabilities, right = np.empty(n), np.empty(n, bool)
    for mine, other in (halves, halves[::-1]):
        of_other = fit_temperature(logits.values[other], logits.targets[other])
        probabilities[mine], right[mine] = _answers(logits, mine, of_other)
    curve = precision_curve(*_answers(logits, torch.arange(n), temperature))
    return calibration_of(probabilities, right).model_copy(update={"curve": curve})


def _answers(logits: Logits, rows: Tensor, temperature: float) -> tuple[Floats, Mask]:
    """The probability of the answer to some of the images, and whether it is right."""
    said, found = torch.empty(len(rows), dtype=torch.float64), torch.empty(len(rows), dtype=torch.int64)
    for at in range(0, len(rows), _ROWS):
        part = slice(at, at + _ROWS)
        said[part], found[part] = (logits.values[rows[part]].double() / temperature).softmax(1).max(1)
    return said.numpy(), (found == logits.targets[rows]).numpy()


def precision_curve(probabilities: Floats, right: Mask) -> list[CoveragePoint]:
    """At most `POINTS` points by falling probability: from which on, how many images, how many of them right.

    A probability lies in the middle between two images, so that rounding moves none across; images of equal
    probability stay together.
    """
    order, n = np.argsort(-probabilities, kind="stable"), len(probabilities)
    said, rights = probabilities[order], np.cumsum(right[order])
    following = np.append(said[1:], 0.0)
    ends = np.flatnonzero(following < said)  # the last image of each probability
    wanted = -(-np.arange(1, POINTS + 1) * n // POINTS) - 1
    taken = np.unique(ends[np.searchsorted(ends, wanted)])
    middle = np.where(taken == n - 1, said[taken], (said[taken] + following[taken]) / 2)
    return [
        CoveragePoint(probability=float(p), images=int(i) + 1, right=int(rights[i]))
        for p, i in zip(middle, taken, strict=True)
    ]


def calibration_of(probabilities: Floats, right: Mask, seed: int = _SEED) -> Calibration:
    """The calibration of answers.

    Args:
        probabilities: [N] of the answers, at least one.
        right: [N].
    """
    found = sort_answers(probabilities, right)
    gaps = found.probabilities - found.right
    raw, n, rng = found.error_of(gaps), len(gaps), np.random.default_rng(seed)
    drawn = [
        found.error_of(found.probabilities - (rng.random(n) < found.probabilities)) for _ in range(DRAWS)
    ]
    again = [found.error_of(gaps * np.bincount(rng.integers(0, n, n), minlength=n)) for _ in range(DRAWS)]
    error, spread = raw - float(np.mean(drawn)), max(float(np.std(drawn)), float(np.std(again)))
    # Where bins are far off, chance adds nothing, and what was taken off is too much: resamples say how much it added.
    most = max(error, 2 * raw - float(np.mean(again)))
    return Calibration(
        error=error,
        low=error - _95_PERCENT * spread,
        high=most + _95_PERCENT * spread,
        raw=raw,
        images=n,
        bins=_bins(found),
    )


def sort_answers(probabilities: Floats, right: Mask) -> Sorted:
    """Sorted and cut into as many bins as have `LEAST_OF_BIN` images each, at most `MOST_BINS`."""
    order, n = np.argsort(probabilities, kind="stable"), len(probabilities)
    bins = min(MOST_BINS, max(1, n // LEAST_OF_BIN))
    return Sorted(probabilities[order], right[order], np.arange(bins) * n // bins)


def _bins(found: Sorted) -> list[CalibrationBin]:
    parts = zip(
        np.split(found.probabilities, found.starts[1:]), np.split(found.right, found.starts[1:]), strict=True
    )
    return [
        CalibrationBin(images=len(right), probability=float(said.mean()), right=int(right.sum()))
        for said, right in parts
    ]
