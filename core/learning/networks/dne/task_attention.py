"""Attention between heads, patch by patch: a new expert reads its own and earlier features.

    A = softmax_j((W_q z_i) · (W_k x_j) / √c)        over all heads j, the new expert's own included
    out_i = λ_i Σ_j A_ij (V_j x_j + b_j)             V_j belongs to the source, not to the output

z: the new expert's heads, x: all heads. With a uniform A and λ = H the outputs are one linear map
of all heads, an MLP across experts; λ starts at the number of older heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class TaskAttention(nn.Module):
    """Attention of an expert's heads z [..., own, c] to the heads x [..., H, c] of all experts.

    The leading dimensions (images and patches) are not mixed. `forward` rearranges the formula.
    Keys are not projected, since (W_q z) · (W_k x) = (z W_qᵀ W_k) · x. With one head of its own,
    the sources are scaled before one product with all V_j at once, so that no value is made for
    each source.
    """

    def __init__(self, own: int, sources: int, inner: int, out: int) -> None:
        super().__init__()
        self.own = own
        self.query = nn.Parameter(torch.empty(inner, inner))
        self.key = nn.Parameter(torch.empty(inner, inner))
        self.scale = nn.Parameter(torch.full((own,), float(sources - own)))
        self.value = nn.Parameter(torch.empty(sources, out, inner))
        self.bias = nn.Parameter(torch.empty(sources, out))

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """Attend from an expert's heads z [..., own, c] to source heads x [..., H, c]."""
        weights = self.scale[:, None] * self.compute_attention(z, x)
        constant = weights @ self.bias
        if self.own == 1:
            scaled = weights.transpose(-1, -2) * x
            # All sources in one product, so that no value [.., H, out] is made.
            joined = self.value.permute(1, 0, 2).flatten(1)  # [out, H · c]
            return (scaled.flatten(-2) @ joined.T).unsqueeze(-2) + constant
        values = torch.einsum("...jc,joc->...jo", x, self.value)
        return weights @ values + constant

    def compute_attention(self, z: Tensor, x: Tensor) -> Tensor:
        """Compute the attention weights [..., own, H], with a softmax in at least float32."""
        queries = z @ (self.query.T @ self.key)
        scores = queries @ x.transpose(-1, -2) / math.sqrt(x.shape[-1])
        return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(
            scores.dtype
        )
