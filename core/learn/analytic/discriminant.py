"""Linear discriminant analysis from sums alone: one Gaussian for each class, with a covariance that all share.

SLDA (Hayes & Kanan 2020, arXiv 1909.01520), with the covariance Σ = (G − Σ_c n_c μ_c μ_cᵀ) / (N − C) shrunk towards
(tr Σ / K)·I by OAS (Chen et al. 2010, IEEE TSP 58(10), equation 23). Its softmax is a probability, and with a uniform
prior a rare class is not answered less for being rare.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from core.learn.analytic.linear import Linear
from core.learn.analytic.sums import Sums
from core.learn.calibration.temperature import fit_temperature

Prior = Literal["uniform", "empirical"]
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Values of ρ that are tried beside that of OAS."""


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


def choose_share(sums: Sums, h: Tensor, labels: Tensor) -> float:
    """Choose ρ by the least cross-entropy of left-out scores at their best temperature.

    OAS supposes one Gaussian for all examples, and shrinks features of networks too little: with fewer examples than
    features that costs up to four points of accuracy (docs/design/defaults.md).

    Args:
        sums: of which the examples are part.
        h: float64 [n, K], n > 0.
        labels: int64 [n], of classes with two examples or more.
    """
    judged = _LeftOut(sums, h, labels)
    shares = (oas(covariance(sums), sums.examples), *SHARES)

    def error(share: float) -> float:
        scores = judged.score(share)
        return float(functional.cross_entropy(scores / fit_temperature(scores, labels), labels))

    return min(shares, key=error)


def left_out(sums: Sums, h: Tensor, labels: Tensor, share: float) -> Tensor:
    """Scores float64 [n, C] of examples, each by `discriminant(·, "uniform", share)` of all examples but itself.

    Args:
        sums: of which the examples are part.
        h: float64 [n, K].
        labels: int64 [n]; scores of the only example of a class are NaN.
        share: ρ, the same for all.
    """
    return _LeftOut(sums, h, labels).score(share)


class _LeftOut:
    """Left-out scores for any ρ.

    Without example h of class c both its mean and Σ change: with r = h − μ_c, μ_c moves by −r / (n_c − 1), and Σ is
    (N − C) Σ − n_c / (n_c − 1) r rᵀ over N − 1 − C. In the eigenvectors of Σ the shrunk covariance is diagonal but for
    that one direction, which Sherman and Morrison's formula inverts. An example that Σ keeps is answered far better
    than a new one: three classes of 20 in 200 features of noise seem to be .83 right instead of .33.
    """

    def __init__(self, sums: Sums, h: Tensor, labels: Tensor) -> None:
        sigma, mu = covariance(sums), means(sums)
        freedom = sums.examples - int((sums.counts > 0).sum())
        values, basis = torch.linalg.eigh(sigma)
        self._sums, self._labels, self._n = sums, labels, sums.counts.to(h.dtype)[labels]
        self._h, self._mu = h @ basis, mu @ basis
        self._residual = self._h - self._mu[labels]
        self._lost = self._n / (self._n - 1).clamp(min=1) / max(freedom - 1, 1)  # what Σ loses of r rᵀ
        kept = freedom / max(freedom - 1, 1)
        self._values = kept * values.clamp(min=0)
        self._mean = (float(sigma.trace()) * kept - self._lost * self._residual.square().sum(1)) / len(sigma)
        least = torch.finfo(h.dtype).eps * float(sums.gram.diagonal().mean())
        self._least = max(least, torch.finfo(h.dtype).tiny)

    def score(self, share: float) -> Tensor:
        """Return scores float64 [n, C]."""
        h, mu, residual, labels = self._h, self._mu, self._residual, self._labels
        spread = (1 - share) * self._values + share * self._mean[:, None]
        inverse = 1 / spread.clamp(min=self._least)  # [n, K]
        h_mu, r_mu = (h * inverse) @ mu.T, (residual * inverse) @ mu.T
        mu_mu = inverse @ mu.square().T
        r_h, r_r = (residual * inverse * h).sum(1), (residual.square() * inverse).sum(1)
        own, step = torch.arange(len(h), device=h.device), 1 / (self._n - 1).clamp(min=1)
        mu_mu[own, labels] += step.square() * r_r - 2 * step * r_mu[own, labels]
        h_mu[own, labels] -= step * r_h
        r_mu[own, labels] -= step * r_r
        down = (1 - share) * self._lost
        gain = down / (1 - down * r_r)
        scores: Tensor = h_mu + (gain * r_h)[:, None] * r_mu - 0.5 * (mu_mu + gain[:, None] * r_mu.square())
        scores = scores.masked_fill(self._sums.counts == 0, -torch.inf)
        return scores.masked_fill((self._n < 2)[:, None], torch.nan)
