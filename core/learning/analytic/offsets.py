"""Class offsets that keep a large class from being predicted more readily.

A classifier fits the images that it was solved from better than new ones, and the more so the fewer
there are of a class. So new images of rare classes score less than those of large ones. The offset
of a class is −β log n of its images; β is the one with the least cross-entropy of left-out answers,
in which each class weighs the same. Where classes are equally large there is none.
"""

from __future__ import annotations

import torch
from torch import Tensor

START = 2.3
"""log of the factor from which the fit begins; scores of a ridge lie between 0 and 1."""
STEPS = 100


def fit_class_offsets(scores: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Return what is added to the scores of each class, float64 [C]; 0 at an average of the
    classes.

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
    has_impossible = bool(impossible.any())
    centred = scores.masked_fill(impossible, 0.0) if has_impossible else scores
    centred = centred - centred.mean(1, keepdim=True)
    # Each class weighs the same: with plain cross-entropy the large classes would hold their
    # advantage.
    weights = 1 / torch.bincount(labels, minlength=len(counts)).double()[labels]
    weights = weights / weights.sum()
    own = centred.gather(1, labels[:, None])[:, 0]
    own_sizes = sizes[labels]
    # The scale is fitted in its logarithm, so that no step can make it negative.
    scale = torch.tensor(START, dtype=torch.float64, device=scores.device)
    slope = torch.zeros((), dtype=torch.float64, device=scores.device)
    search = torch.optim.LBFGS([scale, slope], max_iter=STEPS, line_search_fn="strong_wolfe")

    def compute_offset_loss_and_gradient() -> Tensor:
        """Compute the weighted cross-entropy, and its gradient for the search.

        Both are written out: with a thousand classes autograd takes twice the time, which is most
        of the fit's.
        """
        factor = scale.exp()
        logits = (factor * centred).sub_(slope * sizes)
        if has_impossible:
            logits.masked_fill_(impossible, -torch.inf)
        highest = logits.amax(1)
        powers = logits.sub_(highest[:, None]).exp_()
        total = powers.sum(1)
        right = factor * own - slope * own_sizes
        share = weights / total
        by_scale = share @ torch.linalg.vecdot(powers, centred) - weights @ own
        scale.grad = factor * by_scale
        slope.grad = weights @ own_sizes - (share @ powers) @ sizes
        return weights @ (total.log() + highest - right)

    search.step(compute_offset_loss_and_gradient)  # type: ignore[no-untyped-call]
    beta = slope / scale.exp()
    # A β below zero would favour the large classes even more, which no left-out score supports.
    return none if not bool(torch.isfinite(beta)) or float(beta) <= 0 else -beta * sizes
