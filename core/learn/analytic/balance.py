"""Ridge regression in which every class weighs the same, however many examples it has.

A plain ridge answers rare classes too seldom: its targets are one-hot, so that each example pulls towards its own
class. Here each example of class c weighs w_c = N / (C n_c). The weighted second moments are taken with the covariance
that all classes share, so that the plain sums are enough and a class of few examples borrows the others' directions:
G_w = Σ_c w_c n_c (Σ + μ_c μ_cᵀ) and Q_w = Q diag(w), with Σ = (G − Σ_c n_c μ_c μ_cᵀ) / N.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.learn.analytic import discriminant, ridge
from core.learn.analytic.sums import Sums


def balance(sums: Sums) -> Sums:
    """Weighted sums, of the same N; a class without examples keeps zeros."""
    counts, mu = sums.counts, discriminant.means(sums)
    known = counts > 0
    each = sums.examples / int(known.sum())
    gram = (sums.gram - sums.cross @ mu) + each * mu.T @ mu
    return Sums((gram + gram.T) / 2, each * mu.T, counts)


def choose_strength(sums: Sums, h: Tensor, labels: Tensor) -> float:
    """Choose λ from `ridge.grid` by the least squared error of left-out scores, in the mean over classes.

    Generalised cross-validation needs no examples, but takes an exact fit of repeated images for a good one: with
    fewer examples than features it then prefers no λ at all.

    Args:
        sums: plain sums, of which the examples are part.
        h: float64 [n, K], n > 0.
        labels: int64 [n], of classes with two examples or more.
    """
    judged = _LeftOut(sums, h, labels)
    strengths = ridge.grid(float(balance(sums).gram.diagonal().mean()))
    weights = 1 / torch.bincount(labels, minlength=len(sums.counts)).to(h.dtype)[labels]

    def error(strength: float) -> float:
        return float((judged.measure_errors(strength) * weights).sum())

    return min(strengths, key=lambda strength: (error(strength), -strength))


def left_out(sums: Sums, strength: float, h: Tensor, labels: Tensor) -> Tensor:
    """Scores float64 [n, C] of examples, each by `ridge.solve(balance(·), strength)` of all examples but itself.

    Args:
        sums: plain sums, of which the examples are part.
        strength: λ > 0, as `ridge.solve` takes it.
        h: float64 [n, K].
        labels: int64 [n]; scores of the only example of a class are NaN.
    """
    return _LeftOut(sums, h, labels).score(strength)


class _LeftOut:
    """Left-out scores for any λ.

    Without example h of class c the shared covariance loses a multiple of (h − μ_c)(h − μ_c)ᵀ and μ_c moves along
    h − μ_c. Both are of rank two in h and μ_c, on a matrix that all examples have in common; Woodbury's identity
    does the rest. In the eigenvectors of that matrix each λ only adds to the eigenvalues.
    """

    def __init__(self, sums: Sums, h: Tensor, labels: Tensor) -> None:
        counts = sums.counts.to(h.dtype)
        mu = discriminant.means(sums)
        within = sums.gram - sums.cross @ mu
        # All in units of (N − 1) / C, the weight of a class: λ becomes λ C / (N − 1), each w_c n_c becomes 1.
        self._unit = int((counts > 0).sum()) / (sums.examples - 1)
        values, basis = torch.linalg.eigh(self._unit * (within + within.T) / 2 + mu.T @ mu)
        self._values = values.clamp(min=0)  # below zero by rounding only
        self._h, self._mu, self._labels = h @ basis, mu @ basis, labels
        self._own = self._mu[labels]
        self._square: Tensor | None = None
        self._n = n = counts[labels]
        residual = torch.stack([torch.ones_like(n), -torch.ones_like(n)], 1)  # h − μ_c in U = [h, μ_c]
        self._moved = torch.stack([-1 / (n - 1), n / (n - 1)], 1)  # the mean without h, in U
        former = torch.stack([torch.zeros_like(n), torch.ones_like(n)], 1)
        lost = (self._unit * n / (n - 1))[:, None, None] * _outer(residual)
        self._change = _outer(self._moved) - _outer(former) - lost

    def score(self, strength: float) -> Tensor:
        """Return scores float64 [n, C]."""
        towards, own = self._solve(strength)
        scores = towards @ self._mu.T
        scores[torch.arange(len(own), device=own.device), self._labels] = own
        without: Tensor = scores.masked_fill((self._n < 2)[:, None], torch.nan)
        return without

    def measure_errors(self, strength: float) -> Tensor:
        """Return the squared distance of each example's scores from its one-hot target, float64 [n].

        Σ_k (vᵀμ_k)² is vᵀ(Σ_k μ_k μ_kᵀ)v: with more classes than features, the scores are not needed for their sum.
        """
        towards, own = self._solve(strength)
        if len(self._mu) <= self._mu.shape[1]:
            others = (towards @ self._mu.T).square().sum(1)
        else:
            if self._square is None:
                self._square = self._mu.T @ self._mu
            others = ((towards @ self._square) * towards).sum(1)
        errors: Tensor = others - (towards * self._own).sum(1).square() + (own - 1).square()
        return errors

    def _solve(self, strength: float) -> tuple[Tensor, Tensor]:
        """Return what μ_k is multiplied by for the score of another class k, [n, K], and the own class's scores [n]."""
        h, own = self._h, self._own
        inverse = 1 / (self._values + strength * self._unit)
        h_inverse, own_inverse = h * inverse, own * inverse  # hᵀB⁻¹, μ_cᵀB⁻¹
        hh, hm, mm = (h_inverse * h).sum(1), (h_inverse * own).sum(1), (own_inverse * own).sum(1)
        inner = torch.stack([torch.stack([hh, hm], 1), torch.stack([hm, mm], 1)], 1)  # [n, 2, 2], UᵀB⁻¹U
        identity = torch.eye(2, dtype=h.dtype, device=h.device)
        middle = torch.linalg.solve(identity + self._change @ inner, self._change)
        left = (torch.stack([hh, hm], 1)[:, None, :] @ middle)[:, 0]  # [n, 2]
        towards = (1 - left[:, :1]) * h_inverse - left[:, 1:] * own_inverse
        # The class's own target is its mean without the example.
        moved = (inner @ self._moved[:, :, None])[:, :, 0]
        return towards, moved[:, 0] - (left * moved).sum(1)


def _outer(vectors: Tensor) -> Tensor:
    return vectors[:, :, None] * vectors[:, None, :]
