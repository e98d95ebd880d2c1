"""Ridge regression in which every class weighs the same, however many examples it has.

A plain ridge answers rare classes too seldom: its targets are one-hot, so that each example pulls towards its own
class. Here each example of class c weighs w_c = N / (C n_c). The weighted second moments are taken with the covariance
that all classes share, so that the plain sums are enough and a class of few examples borrows the others' directions:
G_w = Σ_c w_c n_c (Σ + μ_c μ_cᵀ) and Q_w = Q diag(w), with Σ = (G − Σ_c n_c μ_c μ_cᵀ) / N.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.learn.analytic import discriminant
from core.learn.analytic.sums import Sums


def balance(sums: Sums) -> Sums:
    """Weighted sums, of the same N; a class without examples keeps zeros."""
    counts, mu = sums.counts, discriminant.means(sums)
    known = counts > 0
    each = sums.examples / int(known.sum())
    gram = (sums.gram - sums.cross @ mu) + each * mu.T @ mu
    return Sums((gram + gram.T) / 2, each * mu.T, counts)


def left_out(sums: Sums, strength: float, h: Tensor, labels: Tensor) -> Tensor:
    """Scores float64 [n, C] of examples, each by `ridge.solve(balance(·), strength)` of all examples but itself.

    Without example h of class c the shared covariance loses a multiple of (h − μ_c)(h − μ_c)ᵀ and μ_c moves along
    h − μ_c. Both are of rank two in h and μ_c, on a matrix that all examples have in common; Woodbury's identity
    does the rest.

    Args:
        sums: plain sums, of which the examples are part.
        strength: λ > 0, as `ridge.solve` takes it.
        h: float64 [n, K].
        labels: int64 [n]; scores of the only example of a class are NaN.
    """
    examples, counts = sums.examples, sums.counts.to(h.dtype)
    classes = int((counts > 0).sum())
    mu = discriminant.means(sums)
    within = sums.gram - sums.cross @ mu
    # All in units of (N − 1) / C, the weight of a class: λ becomes λ C / (N − 1), each w_c n_c becomes 1.
    unit = classes / (examples - 1)
    base = (
        unit * within + mu.T @ mu + strength * unit * torch.eye(len(within), dtype=h.dtype, device=h.device)
    )
    factor, failed = torch.linalg.cholesky_ex(base)
    sides = torch.cat([h, mu]).T
    solved = torch.linalg.lstsq(base, sides).solution if int(failed) else torch.cholesky_solve(sides, factor)
    of_h, of_mu = solved[:, : len(h)], solved[:, len(h) :]
    own = torch.arange(len(h), device=h.device)
    h_mu = h @ of_mu  # [n, C], hᵀB⁻¹μ_k
    mu_mu = (mu @ of_mu)[labels]  # [n, C], μ_cᵀB⁻¹μ_k
    hh, hm, mm = (h * of_h.T).sum(1), h_mu[own, labels], mu_mu[own, labels]
    inner = torch.stack(
        [torch.stack([hh, hm], 1), torch.stack([hm, mm], 1)], 1
    )  # [n, 2, 2], UᵀB⁻¹U, U = [h, μ_c]
    n = counts[labels]
    residual = torch.stack([torch.ones_like(n), -torch.ones_like(n)], 1)  # h − μ_c in U
    moved = torch.stack([-1 / (n - 1), n / (n - 1)], 1)  # the mean without h, in U
    former = torch.stack([torch.zeros_like(n), torch.ones_like(n)], 1)
    change = _outer(moved) - _outer(former) - (unit * n / (n - 1))[:, None, None] * _outer(residual)
    identity = torch.eye(2, dtype=h.dtype, device=h.device)
    middle = torch.linalg.solve(identity + change @ inner, change)
    left = torch.stack([hh, hm], 1)[:, None, :] @ middle  # [n, 1, 2]
    right = torch.stack([h_mu, mu_mu], 1)  # [n, 2, C], UᵀB⁻¹M
    scores = h_mu - (left @ right)[:, 0]
    # The class's own target is its mean without the example.
    towards = (inner @ moved[:, :, None])[:, :, 0]
    scores[own, labels] = towards[:, 0] - (left[:, 0] * towards).sum(1)
    without: Tensor = scores.masked_fill((n < 2)[:, None], torch.nan)
    return without


def _outer(vectors: Tensor) -> Tensor:
    return vectors[:, :, None] * vectors[:, None, :]
