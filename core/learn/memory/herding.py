"""Herding: an order of a class's examples in which the mean of every prefix is close to the class mean.

Welling 2009; iCaRL (Rebuffi et al. 2017), algorithm 4: the k-th example brings the mean of the first k
closest to the class mean.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def herd(features: Tensor, count: int) -> Tensor:
    """int64 [min(count, N)]: rows of features [N, D], each once, in herding order; ties go to the lowest row.

    p_k = argmin over the rows left of ‖μ - (φ + Σ_{j<k} φ(p_j)) / k‖. The mean μ is not normalised again.
    """
    features = features.double()
    mean = features.mean(0)
    squares = features.square().sum(1)
    total = torch.zeros_like(mean)
    chosen: list[int] = []
    for k in range(1, min(count, features.shape[0]) + 1):
        # ‖kμ - total - φ‖² without the terms that all rows share: one product instead of N differences
        distance = squares - 2 * (features @ (k * mean - total))
        best = int((distance == distance.min()).nonzero()[0])
        chosen.append(best)
        total += features[best]
        squares[best] = torch.inf  # not again
    return torch.tensor(chosen, dtype=torch.int64, device=features.device)
