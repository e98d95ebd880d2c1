"""A classifier that is linear in its features."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Linear:
    """Weights that score C classes from K features.

    Attributes:
        weight: float64 [C, K].
        bias: float64 [C].
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, h: Tensor) -> Tensor:
        """Return the scores [B, C] of features [B, K]."""
        return h @ self.weight.T.to(h.dtype) + self.bias.to(h.dtype)
