"""Linear discriminant analysis from sums alone: one Gaussian for each class, with a covariance that all share.

SLDA (Hayes & Kanan 2020, arXiv 1909.01520), with the covariance Σ = (G − Σ_c n_c μ_c μ_cᵀ) / (N − C) shrunk towards
(tr Σ / K)·I by OAS (Chen et al. 2010, IEEE TSP 58(10), equation 23). Its softmax is a probability, and with a uniform
prior a rare class is not answered less for being rare.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from core.learn.analytic.linear import Linear
from core.learn.analytic.sums import Sums

Prior = Literal["uniform", "empirical"]


def means(sums: Sums) -> Tensor:
    """μ, float64 [C, K]; zeros for a class without examples."""
    return (sums.cross / sums.counts.clamp(min=1)).T


def covariance(sums: Sums) -> Tensor:
    """Σ, float64 [K, K], about the classes' means."""
    between = sums.cross @ means(sums)
    freedom = max(sums.examples - int((sums.counts > 0).sum()), 1)
    return (sums.gram - between) / freedom


def oas(sigma: Tensor, examples: int) -> float:
    """The share ρ in [0, 1] of (tr Σ / K)·I in the shrunk covariance."""
    width = len(sigma)
    square, trace = float(sigma.square().sum()), float(sigma.trace())
    above = (1 - 2 / width) * square + trace**2
    below = (examples + 1 - 2 / width) * (square - trace**2 / width)
    return 1.0 if below <= 0 else min(1.0, above / below)


def shrunk(sigma: Tensor, share: float) -> Tensor:
    """(1 − ρ) Σ + ρ (tr Σ / K) I."""
    scale = float(sigma.trace()) / len(sigma) or 1.0
    return (1 - share) * sigma + share * scale * torch.eye(len(sigma), dtype=sigma.dtype, device=sigma.device)


def factor(sigma: Tensor, size: float) -> Tensor:
    """The Cholesky factor of Σ, plus the least multiple of I, in powers of ten of rounding, with which there is one.

    Features that do not vary within classes leave of Σ only what rounding made of it, which may be negative.

    Args:
        size: mean of the second moments that Σ was taken from.
    """
    identity = torch.eye(len(sigma), dtype=sigma.dtype, device=sigma.device)
    lower: Tensor
    added = 0.0
    while True:
        lower, wrong = torch.linalg.cholesky_ex(sigma + added * identity)
        if not int(wrong):
            return lower
        added = max(10 * added, torch.finfo(sigma.dtype).eps * max(size, 1.0))


def discriminant(sums: Sums, prior: Prior = "uniform", share: float | None = None) -> Linear:
    """Logits μ_cᵀΣ⁻¹h − ½ μ_cᵀΣ⁻¹μ_c + log prior_c less their mean over the classes with examples; −inf for
    one without.

    What all classes have in common is many times as large as what tells them apart, changes no probability, and would
    cost a sum in float32 a digit or more.

    Args:
        share: ρ; None: by OAS.
    """
    sigma, mu = covariance(sums), means(sums)
    share = oas(sigma, sums.examples) if share is None else share
    lower = factor(shrunk(sigma, share), float(sums.gram.diagonal().mean()))
    weight = torch.cholesky_solve(mu.T, lower).T
    bias = -0.5 * (weight * mu).sum(1)
    known = sums.counts > 0
    if prior == "empirical":
        bias = bias + (sums.counts / sums.examples).log()
    weight, bias = weight - weight[known].mean(0), bias - bias[known].mean()
    return Linear(weight.contiguous(), bias.masked_fill(~known, -torch.inf))
