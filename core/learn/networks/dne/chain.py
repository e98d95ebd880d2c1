"""All experts of a version, layer by layer: attention of each, then hidden heads of each, then outputs of each.

Within a layer nothing waits for an expert but what it reads, and what an earlier expert computes does not depend on
later ones: not by shape, order or kernel. So its features are the same bits whether or not experts came after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.learn.networks.dne.expert import Expert


@dataclass(frozen=True)
class Read:
    """What experts show to later ones: by layer and expert, normalised heads [B, N, d] and hidden ones [B, N, γ d].

    `features`: [B, d] of each.
    """

    heads: list[list[Tensor]]
    hidden: list[list[Tensor]]
    features: list[Tensor]


def features(experts: Sequence[Expert], x: Tensor) -> list[Tensor]:
    """[B, d_t] of each expert, normalised."""
    return read(experts, x).features


def read(experts: Sequence[Expert], x: Tensor) -> Read:
    """One pass of all experts; of none, nothing."""
    rows = [expert.embed(x) for expert in experts]
    heads: list[list[Tensor]] = []
    hidden: list[list[Tensor]] = []
    for layers in zip(*(expert.layers for expert in experts), strict=True):
        spread = [
            layer.attend(r, expert.token) for layer, r, expert in zip(layers, rows, experts, strict=True)
        ]
        heads.append([layer.norm2(s) for layer, s in zip(layers, spread, strict=True)])
        hidden.append([layer.hidden(heads[-1][t], heads[-1][: t + 1]) for t, layer in enumerate(layers)])
        rows = [layer.mix(spread[t], hidden[-1][t], hidden[-1][: t + 1]) for t, layer in enumerate(layers)]
    return Read(heads, hidden, [e.feature(r) for e, r in zip(experts, rows, strict=True)])


def follow(expert: Expert, before: Read, x: Tensor, drops: Tensor | None = None) -> Tensor:
    """The feature [B, d] of the expert that comes after those that were read; only its own operations are done.

    drops: [layers, 2, B], what each of its branches is multiplied by in training.
    """
    r = expert.embed(x)
    for at, layer in enumerate(expert.layers):
        s = layer.attend(r, expert.token, None if drops is None else drops[at, 0])  # type: ignore[operator]
        own = layer.norm2(s)  # type: ignore[operator]
        heads, wide = (before.heads[at], before.hidden[at]) if before.features else ([], [])
        hidden = layer.hidden(own, [*heads, own])  # type: ignore[operator]
        r = layer.mix(s, hidden, [*wide, hidden], None if drops is None else drops[at, 1])  # type: ignore[operator]
    return expert.feature(r)


def drops(layers: int, most: float, batch: int, generator: torch.Generator) -> Tensor:
    """[layers, 2, B]: 0 with a probability that rises with the layer from 0 to `most`, else 1 / (1 - probability)."""
    rate = torch.linspace(0, most, layers)[:, None, None]
    kept = torch.rand(layers, 2, batch, generator=generator) >= rate
    return kept / (1 - rate)
