"""The quadratic program of gradient episodic memory in its dual form, and its solution.

GEM seeks the gradient closest to g that opposes no memory's gradient g_k. With the g_k as rows of G it is g +
Gᵀv, where v solves min ½ vᵀPv + qᵀv subject to v ≥ gamma, P = GGᵀ and q = Gg (Lopez-Paz & Ranzato 2017,
equation 11). The problem has one variable per earlier task, so it is solved on the CPU in float64 whatever
the size of the network. Nothing absolute is added to P, so scaling all gradients leaves v as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

DEGENERATE = 1e-12  # a row of less than this share of the largest |g_k|² constrains nothing
CONVERGED = 1e-12
SWEEPS = 10_000
COLUMNS = 2**17  # columns of G that are float64 at a time


def gram_and_dots(rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """(P [t, t], q [t]) on the CPU in float64, for rows G [t, d] and gradient g [d] of any float type."""
    t = rows.shape[0]
    gram = torch.zeros(t, t, dtype=torch.float64, device=rows.device)
    dots = torch.zeros(t, dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[1], COLUMNS):
        block = rows[:, start : start + COLUMNS].double()
        gram += block @ block.T
        dots += block @ gradient[start : start + COLUMNS].double()
    both = torch.cat([gram, dots[:, None]], 1).cpu()  # in one copy, for which a GPU waits
    return both[:, :t].contiguous(), both[:, t].contiguous()


def solve(gram: Tensor, dots: Tensor, gamma: float) -> Tensor:
    """v [t] ≥ gamma, float64, that minimises ½ vᵀPv + qᵀv; 0 where a row of G is degenerate.

    gram: P [t, t]. dots: q [t]. Both on the CPU. Cyclic coordinate descent on u = v - gamma ≥ 0: for a
    positive semidefinite P every sweep lowers the objective, and each coordinate has a closed form.
    """
    norms = gram.diagonal()
    kept = (norms > DEGENERATE * norms.max()).nonzero().squeeze(1)
    p = gram.index_select(0, kept).index_select(1, kept)
    rows: list[list[float]] = p.tolist()
    # slope = P u + q', kept up to date; plain floats, since a tensor call costs more than a whole row here.
    slope: list[float] = (dots.index_select(0, kept) + gamma * p.sum(1)).tolist()
    u = [0.0] * len(rows)
    for _ in range(SWEEPS):
        change = 0.0
        for k, row in enumerate(rows):
            new = max(0.0, u[k] - slope[k] / row[k])
            step = new - u[k]
            if step != 0.0:
                u[k] = new
                slope = [s + step * r for s, r in zip(slope, row, strict=True)]
                change = max(change, abs(step))
        if change <= CONVERGED * (1 + max(u, default=0.0)):
            break
    v = torch.zeros_like(dots)
    v[kept] = torch.tensor(u, dtype=torch.float64) + gamma
    return v
