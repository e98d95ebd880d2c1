"""Herding: an order of a class's examples in which every prefix has a mean close to the class mean.

Welling 2009; iCaRL (Rebuffi et al. 2017), algorithm 4: the k-th example brings the mean of the
first k closest to the class mean.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def select_rows_by_herding(features: Tensor, count: int) -> Tensor:
    """Select feature rows [N, D] by herding, so that their mean stays near the mean of all; int64.

    p_k = argmin over the remaining rows of ‖μ - (φ + Σ_{j<k} φ(p_j)) / k‖; ties go to the lowest
    row. The mean μ is not normalised again.
    """
    # In float64: the order must not depend on how float32 sums were rounded.
    features = features.double()
    mean = features.mean(0)
    squares = features.square().sum(1)
    total = torch.zeros_like(mean)
    chosen: list[int] = []
    for k in range(1, min(count, features.shape[0]) + 1):
        # ‖kμ - total - φ‖² without the terms that all rows share: one product instead of N
        # differences.
        distance = squares - 2 * (features @ (k * mean - total))
        best = int((distance == distance.min()).nonzero()[0])
        chosen.append(best)
        total += features[best]
        squares[best] = torch.inf  # Never select this row again.
    return torch.tensor(chosen, dtype=torch.int64, device=features.device)
