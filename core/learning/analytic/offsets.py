"""Class offsets that keep a large class from being predicted more readily.

A classifier fits the images that it was solved from better than new ones, and the more so the fewer
there are of a class. So new images of rare classes score less than those of large ones. The offset
of a class is −β log n of its images; β is the one with the least cross-entropy of left-out answers,
in which each class weighs the same. Where classes are equally large there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from core.learning.analytic.linear import list_row_block_slices
from core.learning.evaluation.calibration.temperature import fit_softmax_temperature

# Ends a search that rounding keeps from converging.
MOST_STEPS = 100
CLOSE = 1e-9
"""Decrease of the loss that a Newton step promises, small enough to end the search."""
SUFFICIENT = 1e-4
"""Share of the promised decrease that a step must achieve (Armijo's rule)."""
SHORTEST = 2.0**-20
"""Share of a step below which the search ends."""


def fit_score_offsets_by_class(scores: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Fit an offset for each class's scores to its share of images, float64 [C]; 0 on average.

    Args:
        scores: float64 [n, C], each by the solution without the example; −inf at classes that it
            cannot have.
        labels: int64 [n].
        counts: [C], images of each class.
    """
    present = counts[counts > 0].double()
    none = torch.zeros(len(counts), dtype=torch.float64, device=scores.device)
    if not len(labels) or len(present) < 2 or bool((present == present[0]).all()):
        return none
    sizes = counts.clamp(min=1).double().log() - present.log().mean()
    sizes = torch.where(
        counts > 0, sizes, torch.zeros_like(sizes)
    )  # an absent class stays as it is
    impossible = scores.isinf()
    centred = scores.masked_fill(impossible, 0.0)
    centred = centred - centred.mean(1, keepdim=True)
    # Each class weighs the same: with plain cross-entropy the large classes would hold their
    # advantage.
    weights = 1 / torch.bincount(labels, minlength=len(counts)).double()[labels]
    loss = _WeightedCrossEntropy(
        centred, impossible if bool(impossible.any()) else None, labels, sizes, weights
    )
    scale, _ = loss.find_minimum(
        1 / fit_softmax_temperature(scores, labels), 0.0, moves_slope=False
    )
    # The least loss over all scales is convex in the slope, so its derivative at 0 tells the sign
    # of the best one. A β below zero would favour the large classes even more, which no left-out
    # score supports.
    if loss.compute_derivatives(scale, 0.0).by_slope >= 0:
        return none
    scale, slope = loss.find_minimum(scale, 0.0)
    beta = slope / scale if scale > 0 else math.nan
    return -beta * sizes if math.isfinite(beta) and beta > 0 else none


@dataclass(frozen=True)
class _LossDerivatives:
    """The value of a loss with its first and second derivatives by scale and slope."""

    loss: float
    by_scale: float
    by_slope: float
    by_scale_twice: float
    by_both: float
    by_slope_twice: float

    def compute_newton_step(self) -> tuple[float, float] | None:
        """Return Newton's step of scale and slope; None if the loss is flat in a direction."""
        determinant = self.by_scale_twice * self.by_slope_twice - self.by_both**2
        if determinant <= 0:
            return None
        return (
            (self.by_both * self.by_slope - self.by_slope_twice * self.by_scale) / determinant,
            (self.by_both * self.by_scale - self.by_scale_twice * self.by_slope) / determinant,
        )

    def compute_newton_step_of_scale(self) -> tuple[float, float] | None:
        """Return Newton's step of the scale alone; None if the loss is flat."""
        return (-self.by_scale / self.by_scale_twice, 0.0) if self.by_scale_twice > 0 else None


@dataclass(frozen=True)
class _WeightedCrossEntropy:
    """The weighted cross-entropy of the logits a · score − b · size, convex in scale a and slope b.

    Attributes:
        scores: float64 [n, C].
        impossible: bool [n, C]; None: all classes are possible.
        labels: int64 [n].
        sizes: float64 [C].
        weights: float64 [n].
    """

    scores: Tensor
    impossible: Tensor | None
    labels: Tensor
    sizes: Tensor
    weights: Tensor

    def compute_derivatives(self, scale: float, slope: float) -> _LossDerivatives:
        """Compute the weighted cross-entropy and its derivatives by scale and slope."""
        sums = self.scores.new_zeros(6)
        for rows in list_row_block_slices(self.scores):
            sums += self._sum_derivatives(rows, scale, slope)
        return _LossDerivatives(*(sums / self.weights.sum()).tolist())

    def _sum_derivatives(self, rows: slice, scale: float, slope: float) -> Tensor:
        scores, labels, sizes = self.scores[rows], self.labels[rows], self.sizes
        logits = scale * scores - slope * sizes
        if self.impossible is not None:
            logits.masked_fill_(self.impossible[rows], -torch.inf)
        total = logits.logsumexp(1)
        right = logits.gather(1, labels[:, None])[:, 0]
        # In place: a matrix of all images and classes is by far the largest thing here.
        probability = logits.sub_(total[:, None]).exp_()
        score = scores.gather(1, labels[:, None])[:, 0]
        by_class = torch.stack([sizes, sizes.square()], 1)
        mean_size, mean_square_size = (probability @ by_class).unbind(1)
        weighted_scores = probability.mul_(scores)
        mean_score = weighted_scores.sum(1)
        mean_product = weighted_scores @ sizes
        mean_square_score = weighted_scores.mul_(scores).sum(1)
        each = torch.stack(
            [
                total - right,
                mean_score - score,
                sizes[labels] - mean_size,
                mean_square_score - mean_score.square(),
                mean_score * mean_size - mean_product,
                mean_square_size - mean_size.square(),
            ]
        )
        return each @ self.weights[rows]

    def find_minimum(
        self, scale: float, slope: float, *, moves_slope: bool = True
    ) -> tuple[float, float]:
        """Minimise the loss over scale and slope by Newton's method from a starting point.

        Without `moves_slope`, only the scale is changed.
        """
        at = self.compute_derivatives(scale, slope)
        for _ in range(MOST_STEPS):
            step = at.compute_newton_step() if moves_slope else at.compute_newton_step_of_scale()
            if step is None:
                break
            promised = -(step[0] * at.by_scale + step[1] * at.by_slope)
            if promised < CLOSE:
                # Not compared with the loss before, from which it differs by rounding.
                return scale + step[0], slope + step[1]
            next_point = self._halve_newton_step((scale, slope), step, at.loss, promised)
            if next_point is None:
                break
            (scale, slope), at = next_point
        return scale, slope

    def _halve_newton_step(
        self,
        point: tuple[float, float],
        step: tuple[float, float],
        loss: float,
        promised: float,
    ) -> tuple[tuple[float, float], _LossDerivatives] | None:
        """Halve a Newton step until the loss falls enough; return None if it never does."""
        share = 1.0
        while share >= SHORTEST:
            moved = point[0] + share * step[0], point[1] + share * step[1]
            at = self.compute_derivatives(*moved)
            if at.loss <= loss - SUFFICIENT * share * promised:
                return moved, at
            share /= 2
        return None
