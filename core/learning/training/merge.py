"""Merging after training: weights move back on a straight line towards the parent version.

θ = (1 - a) θ_start + a θ_trained for trained parameters that existed before, WiSE-FT (Wortsman et
al. 2022, arXiv 2109.01903): earlier knowledge returns faster than new knowledge is lost. Rows of
new classes have no start and stay as trained. BatchNorm layers that were trained get the mean
statistics of the task's images under the merged weights. `weight` sets a. `within` takes the
smallest a of 0, 0.1, … 1 whose validation accuracy is at most so far below the best on this grid.

The order is: train, deploy the best validated state, merge, rebalance, `end_task`. So curvature and
selected images are of the merged weights, and so are logits that a method took of the new images
(`after_weight_merge`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from core.learning.methods.method import Method
from core.learning.networks.interpolation import interpolate_weights
from core.learning.networks.norms import BatchNorm, recompute_batch_norm_statistics
from core.learning.training.context import TaskTrainingContext

GRID = tuple(k / 10 for k in range(11))
NORM_BATCHES = 64
"""Batches of the training part to estimate statistics from: with more they hardly change."""


def merge_trained_with_starting_weights(
    ctx: TaskTrainingContext, method: Method, correct: Callable[[], float], total: int
) -> None:
    """Merge trained weights with the start's if the recipe says so, and log the chosen weight.

    The metric is `merge_weight`.

    Args:
        ctx: the training context.
        method: the method.
        correct: sums the scores of the present network on the validation part; in classification,
            counts correct predictions.
        total: number of images in the validation part.
    """
    rule = ctx.recipe.merge
    if rule is None:
        return
    if ctx.first and not ctx.network.pretrained:
        ctx.log(
            "Nothing is merged in this first task: the weights that it started from are random."
        )
        return
    if rule.within is not None and total == 0:
        ctx.warn(
            "nothing is merged: there is no validation image by which merge.within could choose"
        )
        return
    weight_line = WeightInterpolation(ctx)
    grid: list[tuple[float, float]] = []
    if rule.within is None:
        assert rule.weight is not None
        weight, reason = rule.weight, "as the recipe says"
    else:
        counts = [weight_line.interpolate_and_count_correct(a, correct) for a in GRID]
        grid = [(a, count / total) for a, count in zip(GRID, counts, strict=True)]
        weight = GRID[choose_first_index_near_best(counts, total, rule.within)]
        noun = ctx.problem.primary_measure.noun
        reason = (
            f"the least whose validation {noun} is within {rule.within:g} of the best, "
            f"{max(counts) / total:.3f}"
        )
    weight_line.set_interpolated_weights(weight)
    # At 1 nothing has moved, so what the method computed after training still holds.
    if weight < 1:
        method.after_weight_merge(ctx)
    points = [{"weight": a, "accuracy": accuracy} for a, accuracy in grid]
    ctx.log_metric("merge_weight", weight, {"grid": points})
    ctx.log(
        f"Merged: {weight:g} of what was trained and {1 - weight:g} of the version before, "
        f"{reason}."
    )


def choose_first_index_near_best(correct: Sequence[float], total: int, within: float) -> int:
    """Return the first index whose correct count is within `within` · total of the best.

    total: number of images counted.
    """
    # A count is an integer, so a billionth of an image only cancels rounding errors.
    minimum = max(correct) - within * total - 1e-9
    return next(index for index, count in enumerate(correct) if count >= minimum)


class WeightInterpolation:
    """Interpolation of weights between the task's start and the trained network."""

    def __init__(self, ctx: TaskTrainingContext) -> None:
        self._ctx = ctx
        # Copied, since each point of the grid is computed from the trained weights, not from the
        # last point.
        self._trained = {name: p.detach().clone() for name, p in ctx.trainable.items()}
        start = ctx.weights_at("update_start")
        # A head without rows at the start has no starting point.
        self._start = {
            name: start[name].to(p)
            for name, p in self._trained.items()
            if name in start and start[name].numel()
        }
        # Norms that did not train keep statistics that fit their weights.
        moved = {id(p) for p in ctx.trainable.values()}
        self._norms = [
            module
            for module in ctx.network.modules()
            if isinstance(module, BatchNorm) and any(id(p) in moved for p in module.parameters())
        ]
        self._statistics = [
            {name: buffer.clone() for name, buffer in norm.named_buffers()} for norm in self._norms
        ]

    def set_interpolated_weights(self, weight: float) -> None:
        """Set the network to interpolated weights; at `weight` 1 it is the trained one, bit for
        bit.
        """
        with torch.no_grad():
            for name, value in interpolate_weights(self._trained, self._start, 1 - weight).items():
                self._ctx.trainable[name].copy_(value)
            for norm, buffers in zip(self._norms, self._statistics, strict=True):
                for name, buffer in norm.named_buffers():
                    buffer.copy_(buffers[name])
        # At 1 the trained statistics are restored above, bit for bit.
        if weight < 1 and self._norms:
            recompute_batch_norm_statistics(
                self._ctx.network, self._norms, self._iterate_batch_norm_inputs()
            )

    def interpolate_and_count_correct(self, weight: float, count: Callable[[], float]) -> float:
        """Set the network to interpolated weights, and return the result of `count`."""
        self.set_interpolated_weights(weight)
        return count()

    def _iterate_batch_norm_inputs(self) -> Iterator[Tensor]:
        return (batch.x for batch in islice(self._ctx.examples(), NORM_BATCHES))
