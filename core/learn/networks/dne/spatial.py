"""Attention between the patches of an image, inside one expert: with or without a gate to fixed positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class SpatialAttention(nn.Module):
    """[B, N, d] to [B, N, d], N = grid² patches, row by row.

    Plain: softmax(q kᵀ / √D) v per head of D channels, q, k and v without bias (queries, keys, values), and
    an output layer with one. Gated (d'Ascoli et al. 2021, ConViT, arXiv 2103.10697): (1 - σ(g)) times that,
    plus σ(g) softmax_j(w · δ_ij) v, δ_ij = (Δx, Δy, Δx² + Δy²) from patch i to patch j; w and g are learned
    per head. A bias beside w · δ would cancel in the softmax.
    """

    def __init__(self, heads: int, head_dim: int, grid: int | None, local: bool = False) -> None:
        """`grid`: patches a side for gated attention; None: plain. `local`: see `init_as_convolution`."""
        super().__init__()
        width = heads * head_dim
        self.heads = heads
        self.local = local
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        self.grid = grid
        if grid is not None:
            self.position = nn.Parameter(torch.zeros(heads, 3))
            self.gate = nn.Parameter(torch.ones(heads))

    def forward(self, y: Tensor, queries: Tensor | None = None) -> Tensor:
        """`queries`: of other tokens, in plain attention."""
        return self.joined(self.attend(*self.projected(y, queries)))

    def projected(self, y: Tensor, queries: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v [B, heads, tokens, D]; queries of other tokens where given."""
        asking = y if queries is None else queries
        return self._split(self.query(asking)), self._split(self.key(y)), self._split(self.value(y))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[B, heads, tokens, D]."""
        content = functional.scaled_dot_product_attention(q, k, v)
        return content if self.grid is None else self.gated(content, v)

    def gated(self, content: Tensor, v: Tensor) -> Tensor:
        """The mixture of attention by content, given, and by position."""
        share = self.gate.sigmoid()[:, None, None]
        return (1 - share) * content + share * (self.positions() @ v)

    def positions(self) -> Tensor:
        """[heads, N, N]: attention of each patch to each by position alone. Rows sum to 1."""
        assert self.grid is not None
        scores = torch.einsum("hk,kij->hij", self.position, offsets(self.grid, self.position))
        return scores.softmax(-1)

    def init_as_convolution(self) -> None:
        """The first nine heads attend to the 3 x 3 around a patch: head h1 + 3 h2 at (h2 - 1, h1 - 1)."""
        with torch.no_grad():
            for head in range(min(9, self.heads)):
                away = torch.tensor([head // 3 - 1, head % 3 - 1])
                self.position[head, :2] = 2 * away
                self.position[head, 2] = -1

    def joined(self, heads: Tensor) -> Tensor:
        """[B, heads, tokens, D] to [B, tokens, d], through the output layer."""
        return self.out(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, y: Tensor) -> Tensor:
        return y.reshape(*y.shape[:-1], self.heads, -1).transpose(1, 2)


def offsets(grid: int, like: Tensor) -> Tensor:
    """[3, N, N]: Δx, Δy and their squared length, from patch i (row) to patch j."""
    at = torch.arange(grid, device=like.device, dtype=like.dtype)
    y, x = at.repeat_interleave(grid), at.repeat(grid)
    dx, dy = x[None] - x[:, None], y[None] - y[:, None]
    return torch.stack([dx, dy, dx.square() + dy.square()])
