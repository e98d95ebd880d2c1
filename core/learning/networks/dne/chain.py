"""Passes through a chain of experts: in every layer, each reads the outputs of the earlier ones.

The computation of an earlier expert does not depend on later ones: not by shape, order or kernel.
So its features are the same bits with or without later experts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from core.learning.networks.dne.expert import DneExpert


@dataclass(frozen=True)
class ExpertChainOutputs:
    """Outputs of a chain of experts that later experts read, by expert and layer.

    Attributes:
        heads: normalised heads [B, N, d].
        hidden: hidden heads [B, N, γ d].
        features: [B, d] of each expert.
    """

    heads: list[list[Tensor]] = field(default_factory=list)
    hidden: list[list[Tensor]] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)


def run_expert_chain(experts: Iterable[DneExpert], x: Tensor) -> ExpertChainOutputs:
    """Run all experts of a chain on images x [B, C, S, S], and return their outputs."""
    outputs = ExpertChainOutputs()
    for expert in experts:
        outputs = run_next_expert_of_chain(expert, outputs, x)
    return outputs


def run_next_expert_of_chain(
    expert: DneExpert, before: ExpertChainOutputs, x: Tensor, drop_path: Tensor | None = None
) -> ExpertChainOutputs:
    """Run the next expert of a chain, given the outputs of the earlier ones; return all outputs.

    Args:
        expert: the next expert.
        before: outputs of the earlier experts.
        x: images [B, C, S, S].
        drop_path: [layers, 2, B], multipliers of its branches in training.
    """
    r = expert.embed_patches(x)
    normalised: list[Tensor] = []
    wide: list[Tensor] = []
    for at, layer in enumerate(expert.layers):
        attention_drop, mixing_drop = (None, None) if drop_path is None else drop_path[at]
        s = layer.attend_between_patches(r, expert.token, attention_drop)  # type: ignore[operator]
        normalised.append(layer.norm2(s))  # type: ignore[operator]
        heads = [*(layer_outputs[at] for layer_outputs in before.heads), normalised[at]]
        wide.append(layer.map_to_hidden_channels(normalised[at], heads))  # type: ignore[operator]
        hidden = [*(layer_outputs[at] for layer_outputs in before.hidden), wide[at]]
        r = layer.compute_layer_output(s, wide[at], hidden, mixing_drop)  # type: ignore[operator]
    features = [*before.features, expert.extract_feature(r)]
    return ExpertChainOutputs([*before.heads, normalised], [*before.hidden, wide], features)


def draw_drop_path_masks(
    layers: int, max_rate: float, batch: int, generator: torch.Generator
) -> Tensor:
    """Draw masks of stochastic depth [layers, 2, B]: 0 with probability p, else 1 / (1 - p).

    p rises with the layer from 0 to `max_rate`.
    """
    # Early layers are dropped less: all later ones read them.
    rate = torch.linspace(0, max_rate, layers)[:, None, None]
    is_kept = torch.rand(layers, 2, batch, generator=generator) >= rate
    # Scaled up where it is retained, so that the mean is the same as without dropping.
    return is_kept / (1 - rate)
