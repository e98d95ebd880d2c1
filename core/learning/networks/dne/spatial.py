"""Attention between the patches of an image in one expert, with or without gated positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class PatchGridAttention(nn.Module):
    """Self-attention over a grid of patches, plain or gated with attention by position (ConViT).

    Plain: softmax(q kᵀ / √D) v per head of D channels, q, k and v without bias (queries, keys,
    values), and an output layer with one. Gated (d'Ascoli et al. 2021, ConViT, arXiv 2103.10697):
    (1 - σ(g)) times that, plus σ(g) softmax_j(w · δ_ij) v, δ_ij = (Δx, Δy, Δx² + Δy²) from patch i
    to patch j; w and g are learned per head. A bias beside w · δ would cancel in the softmax.
    """

    def __init__(self, heads: int, head_dim: int, grid: int | None, local: bool = False) -> None:
        """Set up the attention's layers.

        `grid`: patches a side for gated attention; None: plain. `local`: see
        `init_heads_as_convolution`.
        """
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
        """Attend between tokens; `queries`: other tokens to attend from, in plain attention."""
        return self.join_heads_and_project(
            self.compute_attended_values(*self.compute_qkv(y, queries))
        )

    def compute_qkv(
        self, y: Tensor, queries: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values [B, heads, tokens, D]; queries come from `queries` if
        given.
        """
        query_tokens = y if queries is None else queries
        return (
            self._split_heads(self.query(query_tokens)),
            self._split_heads(self.key(y)),
            self._split_heads(self.value(y)),
        )

    def compute_attended_values(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Compute the attended values of each head, [B, heads, tokens, D]."""
        content = functional.scaled_dot_product_attention(q, k, v)
        return content if self.grid is None else self.blend_attention_by_gate(content, v)

    def blend_attention_by_gate(self, content: Tensor, v: Tensor) -> Tensor:
        """Blend attention by content with attention by position, by each head's learned gate."""
        share = self.gate.sigmoid()[:, None, None]
        return (1 - share) * content + share * (self.compute_positional_attention() @ v)

    def compute_positional_attention(self) -> Tensor:
        """Compute each patch's attention by position alone, [heads, N, N]. Rows sum to 1."""
        assert self.grid is not None
        scores = torch.einsum(
            "hk,kij->hij", self.position, compute_offsets_between_patches(self.grid, self.position)
        )
        return scores.softmax(-1)

    def init_heads_as_convolution(self) -> None:
        """Initialise the first nine heads as a convolution: each attends to one of the 3 x 3
        neighbours.

        Head h1 + 3 h2 attends to (h2 - 1, h1 - 1).
        """
        with torch.no_grad():
            for head in range(min(9, self.heads)):
                away = torch.tensor([head // 3 - 1, head % 3 - 1])
                # −‖δ − away‖² but for a constant, which cancels in the softmax: it is largest at
                # the patch `away`.
                self.position[head, :2] = 2 * away
                self.position[head, 2] = -1

    def join_heads_and_project(self, heads: Tensor) -> Tensor:
        """Join the heads [B, heads, tokens, D] to [B, tokens, d], and apply the output layer."""
        return self.out(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split_heads(self, y: Tensor) -> Tensor:
        return y.reshape(*y.shape[:-1], self.heads, -1).transpose(1, 2)


def compute_offsets_between_patches(grid: int, template: Tensor) -> Tensor:
    """Compute offsets Δx, Δy and their squared length between all pairs of patches, [3, N, N]."""
    at = torch.arange(grid, device=template.device, dtype=template.dtype)
    y, x = at.repeat_interleave(grid), at.repeat(grid)
    dx, dy = x[None] - x[:, None], y[None] - y[:, None]
    return torch.stack([dx, dy, dx.square() + dy.square()])
