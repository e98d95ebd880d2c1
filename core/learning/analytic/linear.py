"""A classifier that is linear in its features, and random features that bring more within its reach.

The random features are h = relu(R φ), with R drawn once from a standard normal distribution. R
comes from a seed and is fixed for a model's life (RanPAC, McDonnell et al. 2023, arXiv 2307.02251).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CACHE_BYTES = 2**20
"""Size of a block of rows, of which a processor's cache holds a few."""


@dataclass(frozen=True)
class LinearWeights:
    """The weights of a linear classifier that scores C classes from K features.

    Attributes:
        weight: float64 [C, K].
        bias: float64 [C].
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, h: Tensor) -> Tensor:
        """Return the scores [B, C] of features [B, K]."""
        return h @ self.weight.T.to(h.dtype) + self.bias.to(h.dtype)


def draw_projection_matrix(columns: int, width: int, seed: int) -> Tensor:
    """Draw the random projection matrix R, float32 [M, D], deterministically from a seed."""
    # On the CPU and from a generator of its own: the same matrix on every device, whatever was
    # drawn before.
    return torch.randn(columns, width, generator=torch.Generator().manual_seed(seed))


def project_to_random_features(features: Tensor, projection: Tensor) -> Tensor:
    """Map features φ [B, D] to random features h = relu(φ Rᵀ), float32 [B, M]."""
    return (features.float() @ projection.T.to(features.device)).relu()


def append_column_of_ones(features: Tensor) -> Tensor:
    """Append a column of ones to features, [B, D + 1], so that the last weight is a bias."""
    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)


def list_row_block_slices(h: Tensor) -> list[slice]:
    """Split the rows of a matrix [n, K] into blocks to bound memory; at least one, empty if n is 0.

    On the CPU, operations on a block in the cache take a third of the time of operations on all
    rows, whose intermediate results go through main memory. On other devices the block is whole.
    """
    count = max(1, len(h))
    size = count
    if h.device.type == "cpu":
        size = max(1, CACHE_BYTES // max(1, h.shape[1] * h.element_size()))
    return [slice(start, start + size) for start in range(0, count, size)]
