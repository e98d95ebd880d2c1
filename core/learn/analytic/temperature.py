"""One number by which scores are divided, so that their softmax is a probability (Guo et al. 2017, arXiv
1706.04599)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

COLDEST, WARMEST, STEPS = 1e-3, 10.0, 200


def temperature(scores: Tensor, labels: Tensor) -> float:
    """τ on a grid of equal ratios from 0.001 to 10 with the least mean cross-entropy of scores / τ.

    Args:
        scores: float64 [n, C] of examples that the classifier was not made of.
        labels: int64 [n].
    """
    exponents = torch.linspace(math.log(COLDEST), math.log(WARMEST), STEPS, dtype=torch.float64)
    grid: list[float] = exponents.exp().tolist()
    return min(grid, key=lambda value: float(functional.cross_entropy(scores / value, labels)))
