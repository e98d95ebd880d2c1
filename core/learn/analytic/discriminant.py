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


def left_out(sums: Sums, h: Tensor, labels: Tensor, share: float) -> Tensor:
    """Scores float64 [n, C] of examples, each by `discriminant(·, "uniform", share)` of all examples but itself.

    Without example h of class c both its mean and Σ change: with r = h − μ_c, μ_c moves by −r / (n_c − 1), and Σ is
    (N − C) Σ − n_c / (n_c − 1) r rᵀ over N − 1 − C. In the eigenvectors of Σ the shrunk covariance is diagonal but for
    that one direction, which Sherman and Morrison's formula inverts. An example that Σ keeps is answered far better
    than a new one: three classes of 20 in 200 features of noise seem to be .83 right instead of .33.

    Args:
        sums: of which the examples are part.
        h: float64 [n, K].
        labels: int64 [n]; scores of the only example of a class are NaN.
        share: ρ, the same for all.
    """
    sigma, mu, n = covariance(sums), means(sums), sums.counts.to(h.dtype)[labels]
    freedom = sums.examples - int((sums.counts > 0).sum())
    values, basis = torch.linalg.eigh(sigma)
    h, mu = h @ basis, mu @ basis
    residual = h - mu[labels]
    lost = n / (n - 1).clamp(min=1) / max(freedom - 1, 1)  # what Σ loses of r rᵀ
    kept = freedom / max(freedom - 1, 1)
    trace = float(sigma.trace()) * kept - lost * residual.square().sum(1)
    spread = (1 - share) * kept * values.clamp(min=0) + share * (trace / len(sigma))[:, None]
    least = torch.finfo(h.dtype).eps * float(sums.gram.diagonal().mean())
    inverse = 1 / spread.clamp(min=max(least, torch.finfo(h.dtype).tiny))  # [n, K]
    h_mu, r_mu = (h * inverse) @ mu.T, (residual * inverse) @ mu.T
    mu_mu = inverse @ mu.square().T
    r_h, r_r = (residual * inverse * h).sum(1), (residual.square() * inverse).sum(1)
    own, step = torch.arange(len(h), device=h.device), 1 / (n - 1).clamp(min=1)
    mu_mu[own, labels] += step.square() * r_r - 2 * step * r_mu[own, labels]
    h_mu[own, labels] -= step * r_h
    r_mu[own, labels] -= step * r_r
    down = (1 - share) * lost
    gain = down / (1 - down * r_r)
    scores: Tensor = h_mu + (gain * r_h)[:, None] * r_mu - 0.5 * (mu_mu + gain[:, None] * r_mu.square())
    scores = scores.masked_fill(sums.counts == 0, -torch.inf)
    return scores.masked_fill((n < 2)[:, None], torch.nan)
