"""Ridge regression onto one-hot labels, from sums alone: W = (G + λI)⁻¹ Q.

RanPAC (McDonnell et al. 2023, arXiv 2307.02251, equations 6 to 8) and ACIL (Zhuang et al. 2022,
arXiv 2205.14922). λ is chosen by generalised cross-validation (Golub, Heath & Wahba 1979), which
also needs only the sums: GCV(λ) = N·RSS(λ) / (N − tr H(λ))².
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.learning.analytic.sums import FeatureSums

EXPONENTS = range(-8, 5)
"""Exponents of ten to try; λ is that power times the mean of G's diagonal."""


def solve_ridge_regression(sums: FeatureSums, strength: float) -> Tensor:
    """Solve ridge regression from feature sums, and return the weights W, float64 [K, C].

    Args:
        sums: sums over the examples.
        strength: λ > 0, in units of G.
    """
    regular = sums.gram + strength * torch.eye(
        len(sums.gram), dtype=torch.float64, device=sums.gram.device
    )
    factor, failed = torch.linalg.cholesky_ex(regular)
    if int(failed):  # λ is below G's rounding, so the matrix is not positive definite
        solution: Tensor = torch.linalg.lstsq(regular, sums.cross).solution
        return solution
    return torch.cholesky_solve(sums.cross, factor)


def choose_ridge_strength_and_solve(sums: FeatureSums) -> tuple[float, Tensor]:
    """Choose the ridge strength λ with the least generalised cross-validation error; return λ and
    W.

    One eigendecomposition G = V diag(e) Vᵀ serves all: with A = VᵀQ, tr WᵀQ = Σ ‖A_i‖² / (e_i + λ),
    tr WᵀGW = Σ e_i ‖A_i‖² / (e_i + λ)² and tr H = Σ e_i / (e_i + λ).
    """
    values, vectors = torch.linalg.eigh(sums.gram)
    values = values.clamp(min=0)  # below zero by rounding only
    rotated = vectors.T @ sums.cross
    energy = rotated.square().sum(1)
    scale = float(sums.gram.diagonal().mean())
    best = min(
        list_candidate_ridge_strengths(scale),
        # Of equal scores the larger λ wins: its solution is the smoother.
        key=lambda strength: (
            _compute_generalised_cross_validation(strength, values, energy, sums.example_count),
            -strength,
        ),
    )
    return best, vectors @ (rotated / (values + best)[:, None])


def list_candidate_ridge_strengths(scale: float) -> list[float]:
    """Return the candidate ridge strengths λ, all positive, for a mean `scale` of the Gram matrix's
    diagonal.
    """
    # Features that are all zero have no scale; any positive λ will do.
    return [10.0**exponent * (scale or 1.0) for exponent in EXPONENTS]


def _compute_generalised_cross_validation(
    strength: float, values: Tensor, energy: Tensor, examples: int
) -> float:
    """Compute the generalised cross-validation score GCV(λ); infinity without degrees of
    freedom.
    """
    shrunk = values + strength
    residual = examples - 2 * (energy / shrunk).sum() + (values * energy / shrunk.square()).sum()
    freedom = examples - (values / shrunk).sum()
    if freedom <= 0:  # as many features as examples: no degrees of freedom are left to judge by
        return float("inf")
    return float(examples * residual / freedom.square())


def compute_leave_one_out_scores(
    sums: FeatureSums, strength: float, weight: Tensor, h: Tensor, labels: Tensor
) -> Tensor:
    """Compute leave-one-out scores of examples under ridge regression, float64 [n, C].

    Each example is scored by the solution without it: (Wᵀh − g y) / (1 − g), g = hᵀ(G + λI)⁻¹h.

    Args:
        sums: sums that include the examples.
        strength: λ > 0.
        weight: W of `sums` at `strength`.
        h: float64 [n, K].
        labels: columns of W, int64 [n].
    """
    regular = sums.gram + strength * torch.eye(len(sums.gram), dtype=torch.float64, device=h.device)
    # A leverage of 1, an example that alone fixes its direction, would divide by zero below.
    leverage = (h * torch.linalg.solve(regular, h.T).T).sum(1).clamp(max=1 - 1e-9)
    targets = torch.nn.functional.one_hot(labels, weight.shape[1]).to(h.dtype)
    scores: Tensor = (h @ weight - leverage[:, None] * targets) / (1 - leverage)[:, None]
    return scores
