"""One expert: a vision transformer of a few heads that also reads the experts before it.

Every layer is pre-norm attention over this expert's own channels, then mixing. In the first expert
mixing is an ordinary MLP. In later ones it is two task attentions: from the normalised heads of all
experts so far to hidden heads γ times as wide, and from all hidden heads back. The last layer
attends from a class token to the patches and mixes that token alone; it is the expert's feature. An
expert never reads later ones, so its outputs are fixed once it is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.learning.networks.dne.spatial import PatchGridAttention
from core.learning.networks.dne.task_attention import TaskAttention

EPSILON = 1e-5


@dataclass(frozen=True)
class ExpertSizes:
    """Sizes that all experts of a DNE network share. `grid`: patches a side. `expansion`: γ, of
    hidden heads.
    """

    layers: int
    head_dim: int
    expansion: int
    channels: int
    patch: int
    grid: int
    gated: bool

    @property
    def hidden_head_channels(self) -> int:
        """Number of channels of a hidden head in an expert's MLP."""
        return self.expansion * self.head_dim


class FirstExpertMlp(nn.Module):
    """Channel mixing of the first expert: an ordinary MLP."""

    def __init__(self, heads: int, sizes: ExpertSizes) -> None:
        super().__init__()
        self.inner = nn.Linear(heads * sizes.head_dim, heads * sizes.hidden_head_channels)
        self.outer = nn.Linear(heads * sizes.hidden_head_channels, heads * sizes.head_dim)

    def map_to_hidden_channels(self, own_heads: Tensor, heads: Sequence[Tensor]) -> Tensor:
        """Map channels [B, N, d] to the MLP's hidden ones [B, N, γ d]; other experts' heads are not
        read.
        """
        return self.inner(own_heads)  # type: ignore[no-any-return]

    def compute_output_channels(self, own_hidden: Tensor, hidden: Sequence[Tensor]) -> Tensor:
        """Map the MLP's hidden channels [B, N, γ d] back to [B, N, d]."""
        return self.outer(own_hidden)  # type: ignore[no-any-return]


class TaskChannelMixing(nn.Module):
    """Channel mixing of a later expert: task attention over the heads of all experts so far.

    `sources`: number of heads of all experts up to this one.
    """

    def __init__(self, heads: int, sources: int, sizes: ExpertSizes) -> None:
        super().__init__()
        self._narrow, self._wide = sizes.head_dim, sizes.hidden_head_channels
        self.inner = TaskAttention(heads, sources, self._narrow, self._wide)
        self.outer = TaskAttention(heads, sources, self._wide, self._narrow)

    def map_to_hidden_channels(self, own_heads: Tensor, heads: Sequence[Tensor]) -> Tensor:
        """Map heads of all experts so far to this expert's hidden heads [B, N, γ d]."""
        hidden: Tensor = self.inner(
            _split_heads(own_heads, self._narrow), join_expert_heads(heads, self._narrow)
        )
        return hidden.flatten(-2)

    def compute_output_channels(self, own_hidden: Tensor, hidden: Sequence[Tensor]) -> Tensor:
        """Map hidden heads of all experts so far to this expert's output heads [B, N, d]."""
        output: Tensor = self.outer(
            _split_heads(own_hidden, self._wide), join_expert_heads(hidden, self._wide)
        )
        return output.flatten(-2)


class DneLayer(nn.Module):
    """One layer of a DNE expert: attention and channel mixing; in the last, only the class token
    attends.
    """

    def __init__(self, heads: int, earlier: int, sizes: ExpertSizes, last: bool) -> None:
        super().__init__()
        width = heads * sizes.head_dim
        self.last = last
        # The last layer attends from a class token, which has no position.
        grid = sizes.grid if sizes.gated and not last else None
        self.norm1 = nn.LayerNorm(width, EPSILON)
        self.attention = PatchGridAttention(heads, sizes.head_dim, grid, local=not earlier)
        self.norm2 = nn.LayerNorm(width, EPSILON)
        self.mixing = (
            TaskChannelMixing(heads, earlier + heads, sizes)
            if earlier
            else FirstExpertMlp(heads, sizes)
        )

    def attend_between_patches(
        self, r: Tensor, token: Tensor, drop: Tensor | None = None
    ) -> Tensor:
        """Attend between patches with a residual connection: return [B, N, d], or [B, 1, d] in the
        last layer.

        drop: [B], the multiplier of the branch.
        """
        if not self.last:
            return r + _apply_drop_path(self.attention(self.norm1(r)), drop)
        # A view: the token is the same for every image.
        token = token.expand(r.shape[0], -1, -1)
        both = self.norm1(torch.cat([token, r], 1))
        return token + _apply_drop_path(self.attention(both, both[:, :1]), drop)

    def map_to_hidden_channels(self, own_heads: Tensor, heads: Sequence[Tensor]) -> Tensor:
        """Compute the hidden heads [B, N, γ d] of the layer's channel mixing.

        own_heads: LN2(s). heads: LN2(s) of every expert up to this one, in order.
        """
        return functional.gelu(self.mixing.map_to_hidden_channels(own_heads, heads))

    def compute_layer_output(
        self, s: Tensor, own_hidden: Tensor, hidden: Sequence[Tensor], drop: Tensor | None = None
    ) -> Tensor:
        """Compute the layer's output [B, N, d] from its hidden heads.

        own_hidden: o. hidden: o of every expert up to this one, in order.
        """
        return s + _apply_drop_path(self.mixing.compute_output_channels(own_hidden, hidden), drop)


class DneExpert(nn.Module):
    """A DNE expert with `heads` attention heads, which reads the `earlier` heads of experts before
    it.
    """

    def __init__(self, heads: int, earlier: int, sizes: ExpertSizes) -> None:
        super().__init__()
        self.heads, self.earlier, self.width = heads, earlier, heads * sizes.head_dim
        self.patch = nn.Conv2d(sizes.channels, self.width, sizes.patch, stride=sizes.patch)
        # Uninitialised: `initialise_expert_module` fills it from the run's generator.
        self.position = nn.Parameter(torch.empty(1, sizes.grid**2, self.width))
        self.token = nn.Parameter(torch.empty(1, 1, self.width))
        self.layers = nn.ModuleList(
            DneLayer(heads, earlier, sizes, last=i == sizes.layers - 1) for i in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(self.width, EPSILON)

    def embed_patches(self, x: Tensor) -> Tensor:
        """Map images [B, channels, size, size] to embedded patches [B, N, d]."""
        return self.patch(x).flatten(2).transpose(1, 2) + self.position  # type: ignore[no-any-return]

    def extract_feature(self, r: Tensor) -> Tensor:
        """Extract the expert's normalised feature [B, d] from the last layer's output [B, 1, d]."""
        return self.norm(r[:, 0])  # type: ignore[no-any-return]


def initialise_expert_module(name: str, module: nn.Module, generator: torch.Generator) -> bool:
    """Initialise a module of a DNE expert; return false for a module without a rule.

    Weights are truncated N(0, 0.02), biases 0, patches as in torch, attention values the identity.
    The first nine heads of the first expert attend to one patch each of the 3 x 3 around. Other
    positions are N(0, 0.02).
    """
    if isinstance(module, nn.Conv2d):
        bound = module.weight[0].numel() ** -0.5
        module.weight.uniform_(-bound, bound, generator=generator)
        assert module.bias is not None
        module.bias.uniform_(-bound, bound, generator=generator)
    elif isinstance(module, nn.Linear):
        if name.endswith("attention.value"):
            nn.init.eye_(module.weight)
        else:
            nn.init.trunc_normal_(module.weight, std=0.02, generator=generator)
        if module.bias is not None:
            module.bias.zero_()
    elif isinstance(module, PatchGridAttention):
        if module.grid is not None:
            module.position.normal_(std=0.02, generator=generator)
            module.gate.fill_(1.0)
            if module.local:
                module.init_heads_as_convolution()
    elif isinstance(module, TaskAttention):
        for weight in (module.query, module.key, module.value):
            nn.init.trunc_normal_(weight, std=0.02, generator=generator)
        module.bias.zero_()
        module.scale.fill_(float(module.value.shape[0] - module.own))
    elif isinstance(module, DneExpert):
        nn.init.trunc_normal_(module.position, std=0.02, generator=generator)
        module.token.zero_()
        if module.earlier:
            nn.init.trunc_normal_(module.token, std=0.02, generator=generator)
    else:
        return False
    return True


def join_expert_heads(heads: Sequence[Tensor], channels: int) -> Tensor:
    """Join every expert's heads [B, N, heads · c] to one [B, N, H, c], ordered by experts, then
    heads.
    """
    return torch.cat([_split_heads(h, channels) for h in heads], -2)


def _split_heads(y: Tensor, channels: int) -> Tensor:
    """Split the last dimension into heads of `channels` channels."""
    return y.reshape(*y.shape[:-1], -1, channels)


def _apply_drop_path(branch: Tensor, drop: Tensor | None) -> Tensor:
    """Multiply a residual branch by one mask number per image, for stochastic depth."""
    return branch if drop is None else branch * drop[:, None, None]
