"""The quadratic program of gradient episodic memory (GEM) in its dual form, and its solver.

GEM seeks the gradient closest to g that opposes no earlier task's gradient g_k. With the g_k as
rows of G it is g + Gᵀv, where v solves min ½ vᵀPv + qᵀv subject to v ≥ gamma, P = GGᵀ and q = Gg
(Lopez-Paz & Ranzato 2017, equation 11). The problem has one variable per earlier task, so it is
solved on the CPU in float64 for networks of any size. No absolute constant is added to P, so
scaling all gradients leaves v unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Rows with less than this share of the largest |g_k|² are treated as zero and constrain nothing.
DEGENERATE = 1e-12
# A sweep that changes u by less than this share ends the search.
CONVERGED = 1e-12
# Ends a search that rounding keeps from converging.
SWEEPS = 10_000
COLUMNS = 2**17  # columns of G converted to float64 at a time


def compute_gram_and_dots(rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the Gram matrix P = G Gᵀ of gradient rows G [t, d], and their products q = G g.

    G and g may have any float type.
    """
    t = rows.shape[0]
    gram = torch.zeros(t, t, dtype=torch.float64, device=rows.device)
    dots = torch.zeros(t, dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[1], COLUMNS):
        block = rows[:, start : start + COLUMNS].double()
        gram += block @ block.T
        dots += block @ gradient[start : start + COLUMNS].double()
    both = torch.cat([gram, dots[:, None]], 1).cpu()  # one copy, so that a GPU waits once
    return both[:, :t].contiguous(), both[:, t].contiguous()


def solve_gem_dual_problem(gram: Tensor, dots: Tensor, gamma: float) -> Tensor:
    """Solve GEM's dual quadratic program: the v [t] ≥ gamma that minimises ½ vᵀPv + qᵀv.

    P and q come from `compute_gram_and_dots`: P = G Gᵀ, whose rows are the gradients of t memories.
    v is 0 where a row of G is almost zero. Uses cyclic coordinate descent on u = v - gamma ≥ 0: for
    a positive semidefinite P every sweep lowers the objective, and each coordinate has a closed
    form.

    Args:
        gram: P, float64 [t, t] on the CPU.
        dots: q, float64 [t] on the CPU.
        gamma: lower bound of v.
    """
    norms = gram.diagonal()
    nonzero_rows = (norms > DEGENERATE * norms.max()).nonzero().squeeze(1)
    p = gram.index_select(0, nonzero_rows).index_select(1, nonzero_rows)
    rows: list[list[float]] = p.tolist()
    # slope = P u + q', updated with each coordinate. Plain floats, since one tensor call costs more
    # than a whole row here.
    slope: list[float] = (dots.index_select(0, nonzero_rows) + gamma * p.sum(1)).tolist()
    u = [0.0] * len(rows)
    # Bounded, since nearly parallel gradients converge slowly: an early end still satisfies v ≥
    # gamma.
    for _ in range(SWEEPS):
        change = 0.0
        for k, row in enumerate(rows):
            # The minimum along this coordinate, clipped to u ≥ 0.
            new = max(0.0, u[k] - slope[k] / row[k])
            step = new - u[k]
            if step != 0.0:
                u[k] = new
                slope = [s + step * r for s, r in zip(slope, row, strict=True)]
                change = max(change, abs(step))
        if change <= CONVERGED * (1 + max(u, default=0.0)):
            break
    v = torch.zeros_like(dots)
    v[nonzero_rows] = torch.tensor(u, dtype=torch.float64) + gamma
    return v
