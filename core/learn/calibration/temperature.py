"""One number by which logits are divided, so that their softmax is a probability (Guo et al. 2017, arXiv 1706.04599).

The mean cross-entropy of β · logits is convex in β = 1 / temperature: its derivative is zero at one place. Newton's
method finds it, in log β and between bounds that close in, since each step costs a softmax of all logits. The target of
an image is its class with the weight (n + 1) / (n + 2), as Platt (1999) has it for n images: without that, held-out
images that are all answered rightly would ask for a probability of one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MOST, MOST_LOGITS, LEAST = 5000, 4_000_000, 1000
"""Images at most that a temperature is fitted to, evenly spaced: more change it by less than a hundredth. Of more than
`LEAST` images no more than have so many logits: the cost does not grow with classes."""
_WIDEST, _STEPS = 1e4, 60
"""β lies within this factor of one over the mean gap between the two greatest logits; steps at most."""
_CLOSE = 1e-9
"""A step of log β that ends the search."""
_FAR = -1e30
"""Stands for the logit of a class that is never answered: its probability is 0, and 0 times it is no NaN."""


def fit_temperature(logits: Tensor, targets: Tensor) -> float:
    """The temperature with the least mean cross-entropy.

    Twice the logits give twice the temperature. 1 where nothing can be fitted: no images, or a single class.

    Args:
        logits: [n, classes] of images that the classifier was not made of; minus infinity for a class that an image
            cannot have. Rows with NaN, and those whose own class is impossible, are left out.
        targets: int64 [n], columns.
    """
    z = logits.double()
    z = z - z.amax(1, keepdim=True)
    possible = torch.isfinite(z)
    own = possible.gather(1, targets[:, None]).squeeze(1)
    kept = (own & ~z.isnan().any(1) & (possible.sum(1) > 1)).nonzero().squeeze(1)
    if not len(kept):
        return 1.0
    most = min(MOST, max(LEAST, MOST_LOGITS // z.shape[1]))
    kept = kept[:: -(-len(kept) // most)]
    z, possible, targets = z[kept], possible[kept], targets[kept]
    z = torch.where(possible, z, torch.full_like(z, _FAR))
    gap = float(-z.topk(2).values[:, 1].mean())
    if gap <= 0:
        return 1.0
    wanted = _wanted(z, possible, targets)
    low, high = -math.log(_WIDEST), math.log(_WIDEST)  # of x = log(β · gap)
    at = 0.0
    for _ in range(_STEPS):
        beta = math.exp(at) / gap
        probability = (beta * z).softmax(1).mul_(z)
        mean = probability.sum(1)
        excess = float(mean.mean()) - wanted
        low, high = (at, high) if excess < 0 else (low, at)
        variance = float((probability.mul_(z).sum(1) - mean.square()).mean())
        slope = beta * variance  # of the mean logit in x
        step = -excess / slope if slope > 0 else math.inf
        following = at + step if low < at + step < high else (low + high) / 2
        step, at = following - at, following
        if abs(step) < _CLOSE:
            break
    return gap / math.exp(at)


def _wanted(z: Tensor, possible: Tensor, targets: Tensor) -> float:
    """Mean logit of the targets: of its class with the weight (n + 1) / (n + 2), of the others with what is left."""
    n = len(z)
    right = z.gather(1, targets[:, None]).squeeze(1)
    others = (torch.where(possible, z, torch.zeros_like(z)).sum(1) - right) / (possible.sum(1) - 1)
    return float(((n + 1) * right + others).mean() / (n + 2))
