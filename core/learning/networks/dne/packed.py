"""Frozen experts layer by layer, neighbours of equal width as one stack: fewer, larger operations.

The formulas are those of `chain.run_expert_chain`. All experts attend between patches in one call,
and values that depend on weights alone are computed once. These are W_qᵀ W_k, attention to
positions, and the first norm's scale and shift, which become part of the projections.

Results equal those of `chain.run_expert_chain` within 1e-5 in float32 and, by length, 2e-2 in
bfloat16. They may change when an expert is added, so this is for training only: stored and served
values come from `chain.run_expert_chain`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.learning.networks.dne.chain import ExpertChainOutputs
from core.learning.networks.dne.expert import EPSILON, DneExpert, DneLayer
from core.learning.networks.dne.spatial import PatchGridAttention
from core.learning.networks.dne.task_attention import TaskAttention


def is_expert_packing_faster(device: torch.device) -> bool:
    """Return true on devices where packed experts train faster: CUDA.

    Launching small operations takes most of the time there. With five experts of 12, 1, 1, 1 and 1
    heads a pass has 311 operations instead of 1,391; the saving on CUDA is not measured yet. On a
    CPU it takes 0.9 (1 head each) to 1.3 (4) times as long: see `bench.methods.dne_cost`.
    """
    return device.type == "cuda"


class PackedExperts:
    """Frozen copies of several experts' weights, packed to run all of them at once.

    Packed within autocast it holds matrices in autocast's format, and must be used within autocast.
    """

    @torch.no_grad()
    def __init__(self, experts: Sequence[DneExpert]) -> None:
        """Pack the first experts of a chain; there may be none."""
        # The first expert mixes by an MLP, so it forms a stack of its own.
        alike = groupby(experts, key=lambda e: (e.earlier > 0, e.heads))
        self._stacks = [_PackedExpertStack(list(group)) for _, group in alike]
        self._attentions = [
            _PackedAttention([layer.attention for layer in group])
            for group in _group_layers_by_position(experts)
        ]

    @torch.no_grad()
    def run_packed_chain(self, x: Tensor) -> ExpertChainOutputs:
        """Run the packed experts on images [B, channels, size, size]; the outputs are as of
        `run_expert_chain`.
        """
        # All experts read the same image, each by its own patches.
        rs = [stack.embed_patches(x) for stack in self._stacks]
        heads, hidden = [], []
        for at, attend in enumerate(self._attentions):
            layers = [stack.layers[at] for stack in self._stacks]
            projected = zip(
                *(layer.compute_qkv(r) for layer, r in zip(layers, rs, strict=True)), strict=True
            )
            attended = attend(*(torch.cat(tensors, 1) for tensors in projected))
            attended_by_stack = attended.split_with_sizes([layer.heads for layer in layers], 1)
            ss = [
                layer.add_attention(r, part)
                for layer, r, part in zip(layers, rs, attended_by_stack, strict=True)
            ]
            normalised = [layer.norm(s) for layer, s in zip(layers, ss, strict=True)]
            sources = _join_expert_outputs_as_attention_sources(layers, normalised)
            wide = [
                layer.map_to_hidden_channels(y, sources)
                for layer, y in zip(layers, normalised, strict=True)
            ]
            sources = _join_expert_outputs_as_attention_sources(layers, wide)
            rs = [
                layer.add_channel_mixing(s, y, sources)
                for layer, s, y in zip(layers, ss, wide, strict=True)
            ]
            heads.append([expert for stack in normalised for expert in stack])
            hidden.append([expert for stack in wide for expert in stack])
        features = [
            f for stack, r in zip(self._stacks, rs, strict=True) for f in stack.norm(r)[:, :, 0]
        ]
        return ExpertChainOutputs(
            _regroup_outputs_by_expert(heads), _regroup_outputs_by_expert(hidden), features
        )


class _PackedExpertStack:
    """G packed experts of k heads each, d = k D channels, whose layers pass on [G, B, N, d]."""

    def __init__(self, experts: Sequence[DneExpert]) -> None:
        self._count, self._side = len(experts), experts[0].patch.kernel_size
        self._patch = _cast_for_matmul(torch.cat([e.patch.weight for e in experts]))
        self._position = torch.stack([e.position + e.patch.bias for e in experts])  # type: ignore[operator]
        tokens = torch.stack([e.token for e in experts])
        self.layers = [
            _PackedLayer(layers, tokens) for layers in _group_layers_by_position(experts)
        ]
        self.norm = _PackedLayerNorm([e.norm for e in experts])

    def embed_patches(self, x: Tensor) -> Tensor:
        """Embed images [B, channels, size, size] as patches of each packed expert, [G, B, N, d]."""
        patches = functional.conv2d(x, self._patch, stride=self._side)
        by_expert = torch.unflatten(patches.flatten(2), 1, (self._count, -1))
        return by_expert.permute(1, 0, 3, 2) + self._position


class _PackedLayer:
    """One layer of several packed experts. `heads`: the number of heads of all these experts, G
    k.
    """

    def __init__(self, layers: Sequence[DneLayer], tokens: Tensor) -> None:
        attentions = [layer.attention for layer in layers]
        self._own = attentions[0].heads
        self.heads = len(layers) * self._own
        self._tokens = tokens if layers[0].last else None
        before = [layer.norm1 for layer in layers]
        self._query = _fold_norms_into_linears(before, [a.query.weight for a in attentions])
        self._known = _fold_norms_into_linears(
            before, [torch.cat([a.key.weight, a.value.weight]) for a in attentions]
        )
        self._out = _pack_linear_layers([a.out for a in attentions])
        self.norm = _PackedLayerNorm([layer.norm2 for layer in layers])
        self._inner = _pack_channel_mixings([layer.mixing.inner for layer in layers])
        self._outer = _pack_channel_mixings([layer.mixing.outer for layer in layers])

    def compute_qkv(self, r: Tensor) -> list[Tensor]:
        """Compute the packed experts' queries, keys and values, each [B, G k, tokens, D]."""
        if self._tokens is not None:
            r = torch.cat([self._tokens.expand(-1, r.shape[1], -1, -1), r], 2)
        y = _cast_for_matmul(_apply_unscaled_layer_norm(r))
        queries = y if self._tokens is None else y[:, :, :1]
        parts = [self._query(queries), *self._known(y).chunk(2, -1)]
        return [self._split_heads(part).permute(1, 0, 3, 2, 4).flatten(1, 2) for part in parts]

    def add_attention(self, r: Tensor, attended: Tensor) -> Tensor:
        """Add the packed experts' attention output to the residual: return [G, B, tokens, d].

        attended: attended values [B, G k, tokens, D].
        """
        by_expert = torch.unflatten(attended, 1, (-1, self._own)).permute(1, 0, 3, 2, 4).flatten(3)
        return (r if self._tokens is None else self._tokens) + self._out(by_expert)

    def map_to_hidden_channels(self, normalised: Tensor, sources: Tensor) -> Tensor:
        """Compute the hidden heads of the packed experts' channel mixing.

        normalised: LN2(s); sources: [B N, H, D] of all experts.
        """
        return functional.gelu(self._inner(normalised, sources))

    def add_channel_mixing(self, s: Tensor, hidden: Tensor, sources: Tensor) -> Tensor:
        """Add the packed experts' channel mixing to the residual: return the layer's output.

        hidden: o; sources: [B N, H, γ D] of all experts.
        """
        return s + self._outer(hidden, sources)

    def arrange_attention_sources(self, y: Tensor) -> Tensor:
        """Rearrange packed expert outputs [G, B, N, k c] as attention sources [B N, G k, c]."""
        return _cast_for_matmul(
            self._split_heads(y).permute(1, 2, 0, 3, 4).flatten(2, 3).flatten(0, 1)
        )

    def _split_heads(self, y: Tensor) -> Tensor:
        return torch.unflatten(y, -1, (self._own, -1))


class _PackedAttention:
    """Attention between patches for the heads of all packed experts at once.

    q, k and v: [B, heads, tokens, D].
    """

    def __init__(self, attentions: Sequence[PatchGridAttention]) -> None:
        self._gated = attentions[0].grid is not None
        if self._gated:
            self._positions = _cast_for_matmul(
                torch.cat([a.compute_positional_attention() for a in attentions])
            )
            self._share = _cast_for_matmul(
                torch.cat([a.gate.sigmoid() for a in attentions])[:, None, None]
            )

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        content = functional.scaled_dot_product_attention(q, k, v)
        if not self._gated:
            return content
        return content.lerp(torch.einsum("hij,bhjd->bhid", self._positions, v), self._share)


class _PackedLayerNorm:
    """Layer norms of all packed experts at once."""

    def __init__(self, norms: Sequence[nn.LayerNorm]) -> None:
        self._weight = torch.stack([norm.weight for norm in norms])[:, None, None]
        self._bias = torch.stack([norm.bias for norm in norms])[:, None, None]

    def __call__(self, y: Tensor) -> Tensor:
        return torch.addcmul(self._bias, _apply_unscaled_layer_norm(y), self._weight)


class _PackedLinear:
    """The linear maps of all packed experts at once: [G, B, N, in] to [G, B, N, out]."""

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
        self._weight = _cast_for_matmul(torch.stack([*weights])).mT
        self._bias = _cast_for_matmul(torch.stack([*biases]))[:, None]

    def __call__(self, y: Tensor, sources: Tensor | None = None) -> Tensor:
        """Apply each expert's linear map. `sources` is ignored: calls are like `_PackedTaskAttention`'s."""
        outputs = torch.baddbmm(self._bias, y.flatten(1, 2), self._weight)
        return outputs.view(*y.shape[:3], -1)


class _PackedTaskAttention:
    """`TaskAttention` of G packed experts at once; sources after an expert's own get no weight
    there.

    Its sum is computed in the way with the smaller intermediate. Either sources times weights [G, B
    N, k, H, in], then one product with all matrices; or values [H, B N, G, out], one product per
    source with all experts that read it.
    """

    def __init__(self, attentions: Sequence[TaskAttention]) -> None:
        last = attentions[-1]
        self._own = last.own
        self._sources, out, self._inner = last.value.shape
        # Both projections become one matrix, which depends on weights alone.
        between = torch.stack([a.query.T @ a.key for a in attentions])
        self._between = _cast_for_matmul(between / math.sqrt(self._inner))
        read = [a.value.new_zeros(a.own, len(a.value)) for a in attentions]
        later = [(0, self._sources - len(a.value)) for a in attentions]
        self._unread = torch.cat(
            [functional.pad(r, n, value=-math.inf) for r, n in zip(read, later, strict=True)]
        )
        self._scale = torch.cat([a.scale for a in attentions])[:, None]
        self._bias = _cast_for_matmul(
            torch.stack([_pad_with_zero_rows(a.bias, self._sources) for a in attentions])
        )
        value = torch.stack([_pad_with_zero_rows(a.value, self._sources) for a in attentions])
        # Whichever intermediate is smaller, by the sizes that the class's description names.
        self._weighs_first = self._own * self._inner < out
        self._value = _cast_for_matmul(
            value.mT.flatten(1, 2) if self._weighs_first else value.permute(1, 3, 0, 2).flatten(2)
        )

    def __call__(self, own_heads: Tensor, sources: Tensor) -> Tensor:
        """Return mixed heads [G, B, N, k out].

        own_heads: [G, B, N, k in], sources: [B N, heads of all experts, in].
        """
        count, x = len(own_heads), sources[:, : self._sources]
        queries = torch.bmm(own_heads.reshape(count, -1, self._inner), self._between)
        # [B N, G k, in]
        queries = torch.unflatten(queries, 1, (-1, self._own)).transpose(0, 1).flatten(1, 2)
        # Minus infinity before the softmax: an expert gives later sources no weight at all.
        weights = self._scale * (queries @ x.mT + self._unread).softmax(-1)
        weights = torch.unflatten(weights.to(x.dtype), 1, (count, -1))
        weights = weights.transpose(0, 1).contiguous()  # [G, B N, k, H]
        outputs = torch.bmm(weights.flatten(1, 2), self._bias)
        if self._weighs_first:
            weighed = weights[..., None] * x[:, None]
            outputs = torch.baddbmm(outputs, weighed.flatten(3).flatten(1, 2), self._value)
        else:
            values = torch.unflatten(torch.bmm(x.transpose(0, 1), self._value), 2, (count, -1))
            values = values.permute(2, 1, 0, 3)  # [G, B N, H, out]
            outputs = outputs + (weights @ values).flatten(1, 2)
        return outputs.reshape(*own_heads.shape[:3], -1)


def _fold_norms_into_linears(
    norms: Sequence[nn.LayerNorm], weights: Sequence[Tensor]
) -> _PackedLinear:
    """Fold the scale g and shift b of layer norms into the linear maps after them: (W g) x + W
    b.
    """
    return _PackedLinear(
        [weight * norm.weight for norm, weight in zip(norms, weights, strict=True)],
        [weight @ norm.bias for norm, weight in zip(norms, weights, strict=True)],
    )


def _pack_linear_layers(modules: Sequence[nn.Linear]) -> _PackedLinear:
    return _PackedLinear([m.weight for m in modules], [m.bias for m in modules])


def _pack_channel_mixings(
    modules: Sequence[nn.Linear | TaskAttention],
) -> _PackedLinear | _PackedTaskAttention:
    attentions = [m for m in modules if isinstance(m, TaskAttention)]
    if attentions:
        return _PackedTaskAttention(attentions)
    return _pack_linear_layers([m for m in modules if isinstance(m, nn.Linear)])


def _join_expert_outputs_as_attention_sources(
    layers: Sequence[_PackedLayer], stacks: Sequence[Tensor]
) -> Tensor:
    """Join the outputs of all packed experts as attention sources [B N, heads of all experts,
    c].
    """
    return torch.cat(
        [layer.arrange_attention_sources(y) for layer, y in zip(layers, stacks, strict=True)], 1
    )


def _apply_unscaled_layer_norm(y: Tensor) -> Tensor:
    return functional.layer_norm(y, y.shape[-1:], eps=EPSILON)


def _pad_with_zero_rows(y: Tensor, rows: int) -> Tensor:
    """Append rows of zeros to a tensor up to `rows` rows."""
    return torch.cat([y, y.new_zeros(rows - len(y), *y.shape[1:])])


def _cast_for_matmul(y: Tensor) -> Tensor:
    """Convert a tensor to the number format of matrix products under the present autocast."""
    kind = y.device.type
    # Converted once when packed: autocast would convert frozen weights again in each step.
    return y.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else y


def _group_layers_by_position(experts: Sequence[DneExpert]) -> list[list[DneLayer]]:
    """Group the experts' layers by their position in the expert."""
    return [
        cast("list[DneLayer]", list(layers))
        for layers in zip(*(e.layers for e in experts), strict=True)
    ]


def _regroup_outputs_by_expert(outputs_by_layer: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """Regroup outputs by layer and expert to outputs by expert and layer."""
    return [list(expert_outputs) for expert_outputs in zip(*outputs_by_layer, strict=True)]
