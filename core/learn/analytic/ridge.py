"""Ridge regression onto one-hot labels, from sums alone: W = (G + λI)⁻¹ Q.

RanPAC (McDonnell et al. 2023, arXiv 2307.02251, equations 6 to 8) and ACIL (Zhuang et al. 2022, arXiv 2205.14922).
λ by generalised cross-validation (Golub, Heath & Wahba 1979), which also needs nothing but the sums:
GCV(λ) = N·RSS(λ) / (N − tr H(λ))².
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.learn.analytic.sums import Sums

EXPONENTS = range(-8, 5)
"""λ is 10 to one of these, times the mean of G's diagonal."""


def solve(sums: Sums, strength: float) -> Tensor:
    """W, float64 [K, C].

    Args:
        strength: λ > 0, in units of G.
    """
    regular = sums.gram + strength * torch.eye(len(sums.gram), dtype=torch.float64, device=sums.gram.device)
    factor, failed = torch.linalg.cholesky_ex(regular)
    if int(failed):  # λ is below G's rounding
        solution: Tensor = torch.linalg.lstsq(regular, sums.cross).solution
        return solution
    return torch.cholesky_solve(sums.cross, factor)


def choose(sums: Sums) -> tuple[float, Tensor]:
    """λ with the least GCV on the grid, the larger of equal ones, and its W, float64 [K, C].

    One eigendecomposition G = V diag(e) Vᵀ serves all: with A = VᵀQ, tr WᵀQ = Σ ‖A_i‖² / (e_i + λ),
    tr WᵀGW = Σ e_i ‖A_i‖² / (e_i + λ)² and tr H = Σ e_i / (e_i + λ).
    """
    values, vectors = torch.linalg.eigh(sums.gram)
    values = values.clamp(min=0)  # below zero by rounding only
    turned = vectors.T @ sums.cross
    energy = turned.square().sum(1)
    scale = float(sums.gram.diagonal().mean())
    best = min(grid(scale), key=lambda strength: (_gcv(strength, values, energy, sums.examples), -strength))
    return best, vectors @ (turned / (values + best)[:, None])


def grid(scale: float) -> list[float]:
    """Values of λ that are tried, for a mean of G's diagonal; all positive."""
    return [10.0**exponent * (scale or 1.0) for exponent in EXPONENTS]


def _gcv(strength: float, values: Tensor, energy: Tensor, examples: int) -> float:
    shrunk = values + strength
    residual = examples - 2 * (energy / shrunk).sum() + (values * energy / shrunk.square()).sum()
    freedom = examples - (values / shrunk).sum()
    if freedom <= 0:  # as many features as examples: nothing is left to judge by
        return float("inf")
    return float(examples * residual / freedom.square())


def left_out(sums: Sums, strength: float, weight: Tensor, h: Tensor, labels: Tensor) -> Tensor:
    """Scores float64 [n, C] of examples, each by the solution without it: (Wᵀh − g y) / (1 − g), g = hᵀ(G + λI)⁻¹h.

    Args:
        weight: W of `sums` at `strength`.
        h: float64 [n, K], examples that `sums` are of.
        labels: columns of W, int64 [n].
    """
    regular = sums.gram + strength * torch.eye(len(sums.gram), dtype=torch.float64, device=h.device)
    leverage = (h * torch.linalg.solve(regular, h.T).T).sum(1).clamp(max=1 - 1e-9)
    own = torch.nn.functional.one_hot(labels, weight.shape[1]).to(h.dtype)
    scores: Tensor = (h @ weight - leverage[:, None] * own) / (1 - leverage)[:, None]
    return scores
