"""All experts of a version, one after the other: each reads the outputs of the earlier ones in every layer.

The computation of an earlier expert does not depend on later ones: not by shape, order or kernel. So its
features are the same bits whether or not other experts follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from core.learn.networks.dne.expert import Expert


@dataclass(frozen=True)
class ChainOutputs:
    """What later experts read, by expert and layer: normalised heads [B, N, d], hidden ones [B, N, γ d].

    `features`: [B, d] of each expert.
    """

    heads: list[list[Tensor]] = field(default_factory=list)
    hidden: list[list[Tensor]] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)


def run_chain(experts: Iterable[Expert], x: Tensor) -> ChainOutputs:
    """One pass of all experts, for x [B, C, S, S]."""
    found = ChainOutputs()
    for expert in experts:
        found = run_expert(expert, found, x)
    return found


def run_expert(
    expert: Expert, before: ChainOutputs, x: Tensor, drop_path: Tensor | None = None
) -> ChainOutputs:
    """The outputs of earlier experts and the next one's. Only the next expert's operations are done.

    drop_path: [layers, 2, B], by which its branches are multiplied in training.
    """
    r = expert.embed(x)
    shown: list[Tensor] = []
    wide: list[Tensor] = []
    for at, layer in enumerate(expert.layers):
        one, other = (None, None) if drop_path is None else drop_path[at]
        s = layer.attend(r, expert.token, one)  # type: ignore[operator]
        shown.append(layer.norm2(s))  # type: ignore[operator]
        heads = [*(of[at] for of in before.heads), shown[at]]
        wide.append(layer.hidden(shown[at], heads))  # type: ignore[operator]
        hidden = [*(of[at] for of in before.hidden), wide[at]]
        r = layer.mix(s, wide[at], hidden, other)  # type: ignore[operator]
    features = [*before.features, expert.feature(r)]
    return ChainOutputs([*before.heads, shown], [*before.hidden, wide], features)


def drop_path_masks(layers: int, most: float, batch: int, generator: torch.Generator) -> Tensor:
    """[layers, 2, B]: 0 with probability p, else 1 / (1 - p); p rises with the layer from 0 to `most`."""
    rate = torch.linspace(0, most, layers)[:, None, None]
    kept = torch.rand(layers, 2, batch, generator=generator) >= rate
    return kept / (1 - rate)
