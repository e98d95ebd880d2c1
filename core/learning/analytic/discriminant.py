"""Linear discriminant analysis from sums alone: one Gaussian per class, with a shared covariance.

SLDA (Hayes & Kanan 2020, arXiv 1909.01520), with the covariance Σ = (G − Σ_c n_c μ_c μ_cᵀ) / (N −
C) shrunk towards (tr Σ / K)·I by OAS (Chen et al. 2010, IEEE TSP 58(10), equation 23). Its softmax
is a probability, and with a uniform prior a class is not predicted less often for being rare.
"""

from __future__ import annotations

from copy import copy
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.analytic.linear import LinearWeights, list_row_block_slices
from core.learning.analytic.sums import FeatureSums
from core.learning.evaluation.calibration.temperature import fit_softmax_temperature

Prior = Literal["uniform", "empirical"]
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Shrinkages ρ to try besides that of OAS."""


def compute_shared_covariance(sums: FeatureSums) -> Tensor:
    """Compute the covariance Σ about the class means that all classes share, float64 [K, K]."""
    # Each class mean costs a degree of freedom; with one image of each class none is left.
    freedom = max(sums.example_count - int((sums.counts > 0).sum()), 1)
    return sums.scatter_within_classes / freedom


def compute_oas_shrinkage(sigma: Tensor, examples: int) -> float:
    """Compute the covariance shrinkage ρ in [0, 1] by oracle approximating shrinkage (OAS).

    ρ is the share of (tr Σ / K)·I in the shrunk covariance.

    Args:
        sigma: Σ, float64 [K, K].
        examples: number of examples.
    """
    width = len(sigma)
    square, trace = float(sigma.square().sum()), float(sigma.trace())
    above = (1 - 2 / width) * square + trace**2
    below = (examples + 1 - 2 / width) * (square - trace**2 / width)
    # Zero if Σ is a multiple of I, which shrinking does not change; negative only by rounding.
    return 1.0 if below <= 0 else min(1.0, above / below)


def shrink_covariance(sigma: Tensor, share: float) -> Tensor:
    """Shrink a covariance towards a multiple of I: (1 − ρ) Σ + ρ (tr Σ / K) I, ρ = `share`."""
    # Features that are all constant have no variance: any positive scale keeps the matrix
    # invertible.
    scale = float(sigma.trace()) / len(sigma) or 1.0
    return (1 - share) * sigma + share * scale * torch.eye(
        len(sigma), dtype=sigma.dtype, device=sigma.device
    )


def compute_covariance_cholesky_factor(sigma: Tensor, size: float) -> Tensor:
    """Return the Cholesky factor of a covariance Σ; a small multiple of I is added if Σ is
    singular.

    Features that do not vary within classes leave only rounding errors in Σ, which may be negative.
    The multiple starts at the rounding of `size` and grows by powers of ten until a factor exists.

    Args:
        sigma: Σ, float64 [K, K].
        size: mean of the second moments that Σ was computed from.
    """
    identity = torch.eye(len(sigma), dtype=sigma.dtype, device=sigma.device)
    lower: Tensor
    added = 0.0
    while True:
        lower, wrong = torch.linalg.cholesky_ex(sigma + added * identity)
        if not int(wrong):
            return lower
        # Powers of ten: at most a few more factorisations, and at most ten times the noise needed.
        added = max(10 * added, torch.finfo(sigma.dtype).eps * max(size, 1.0))


def solve_linear_discriminant_analysis(
    sums: FeatureSums, prior: Prior = "uniform", share: float | None = None
) -> LinearWeights:
    """Solve linear discriminant analysis: the classifier with logits μ_cᵀΣ⁻¹h − ½ μ_cᵀΣ⁻¹μ_c + log
    prior_c.

    Their mean over the classes with examples is subtracted; a class without examples gets −inf. The
    part common to all classes is many times larger than their differences. It changes no
    probability, and would cost a sum in float32 a digit or more.

    Args:
        sums: sums over all examples.
        prior: "uniform", or "empirical" for the classes' shares of the examples.
        share: ρ; None: by OAS.
    """
    sigma, mu = compute_shared_covariance(sums), sums.class_means
    share = compute_oas_shrinkage(sigma, sums.example_count) if share is None else share
    lower = compute_covariance_cholesky_factor(
        shrink_covariance(sigma, share), float(sums.gram.diagonal().mean())
    )
    weight = torch.cholesky_solve(mu.T, lower).T
    bias = -0.5 * (weight * mu).sum(1)
    present = sums.counts > 0
    if prior == "empirical":
        bias = bias + (sums.counts / sums.example_count).log()
    # Classes without examples are left out of the mean: their zero rows would shift all others.
    weight, bias = weight - weight[present].mean(0), bias - bias[present].mean()
    return LinearWeights(weight.contiguous(), bias.masked_fill(~present, -torch.inf))


class DiscriminantLeaveOneOut:
    """Leave-one-out scores of linear discriminant analysis, in closed form for any shrinkage ρ.

    Without example h of class c both its mean and Σ change. With r = h − μ_c, μ_c moves by −r /
    (n_c − 1), and Σ becomes ((N − C) Σ − n_c / (n_c − 1) r rᵀ) / (N − 1 − C). In the eigenvectors
    of Σ the shrunk covariance is diagonal but for that one direction, which Sherman and Morrison's
    formula inverts. An example that stays in Σ is classified far better than a new one: three
    classes of 20 in 200 features of noise appear to be .83 right instead of .33.

    Args:
        sums: sums that include the examples.
        h: float64 [n, K].
        labels: int64 [n]; the scores of a class's only example are NaN.
    """

    def __init__(self, sums: FeatureSums, h: Tensor, labels: Tensor) -> None:
        sigma, mu = compute_shared_covariance(sums), sums.class_means
        freedom = sums.example_count - int((sums.counts > 0).sum())
        values, basis = torch.linalg.eigh(sigma)
        self._oas = compute_oas_shrinkage(sigma, sums.example_count)
        self._sums, self._labels, self._n = sums, labels, sums.counts.to(h.dtype)[labels]
        self._h, self._mu = h @ basis, mu @ basis
        self._residual = self._h - self._mu[labels]
        # The share of r rᵀ removed from Σ.
        self._lost = self._n / (self._n - 1).clamp(min=1) / max(freedom - 1, 1)
        rescale = freedom / max(freedom - 1, 1)
        # Eigenvalues below zero are rounding: Σ is a sum of squares.
        self._values = rescale * values.clamp(min=0)
        self._mean = (
            float(sigma.trace()) * rescale - self._lost * self._residual.square().sum(1)
        ) / len(sigma)
        # Below the rounding of G a variance means nothing, and dividing by it would let noise
        # decide.
        floor = torch.finfo(h.dtype).eps * float(sums.gram.diagonal().mean())
        self._least = max(floor, torch.finfo(h.dtype).tiny)

    def select_examples(self, rows: Tensor | slice) -> DiscriminantLeaveOneOut:
        """Return the leave-one-out statistics of selected examples.

        `rows`: bool, int64 indices, or a slice.
        """
        selected = copy(self)
        for name in ("_h", "_labels", "_n", "_residual", "_lost", "_mean"):
            setattr(selected, name, getattr(self, name)[rows])
        return selected

    def choose_shrinkage(self) -> float:
        """Choose the shrinkage ρ whose leave-one-out scores have the least cross-entropy at their
        best temperature.

        OAS assumes one Gaussian for all examples, and shrinks network features too little: with
        fewer examples than features that costs up to four points of accuracy
        (docs/design/defaults.md). There must be an example, and two or more of each class that has
        any.
        """

        temperature: float | None = None

        def compute_tempered_loss(share: float) -> float:
            nonlocal temperature
            scores = self.compute_scores(share)
            # Shares that follow one another have similar temperatures.
            temperature = fit_softmax_temperature(scores, self._labels, temperature)
            tempered = scores / temperature
            return float(functional.cross_entropy(tempered, self._labels))

        return min((self._oas, *SHARES), key=compute_tempered_loss)

    def compute_scores(self, share: float) -> Tensor:
        """Compute leave-one-out discriminant scores at shrinkage ρ = `share`, float64 [n, C]."""
        return torch.cat(
            [
                self.select_examples(rows)._compute_scores_of_block(share)
                for rows in list_row_block_slices(self._h)
            ]
        )

    def _compute_scores_of_block(self, share: float) -> Tensor:
        h, mu, residual, labels = self._h, self._mu, self._residual, self._labels
        spread = (1 - share) * self._values + share * self._mean[:, None]
        inverse = 1 / spread.clamp(min=self._least)  # [n, K]
        h_mu, r_mu = (h * inverse) @ mu.T, (residual * inverse) @ mu.T
        mu_mu = inverse @ mu.square().T
        r_h, r_r = (residual * inverse * h).sum(1), (residual.square() * inverse).sum(1)
        rows, step = torch.arange(len(h), device=h.device), 1 / (self._n - 1).clamp(min=1)
        mu_mu[rows, labels] += step.square() * r_r - 2 * step * r_mu[rows, labels]
        h_mu[rows, labels] -= step * r_h
        r_mu[rows, labels] -= step * r_r
        down = (1 - share) * self._lost
        # Sherman and Morrison's formula for the direction r.
        gain = down / (1 - down * r_r)
        scores: Tensor = (
            h_mu + (gain * r_h)[:, None] * r_mu - 0.5 * (mu_mu + gain[:, None] * r_mu.square())
        )
        # Of a class without images the mean is zero, which is no evidence: it must never win.
        scores = scores.masked_fill(self._sums.counts == 0, -torch.inf)
        return scores.masked_fill((self._n < 2)[:, None], torch.nan)
