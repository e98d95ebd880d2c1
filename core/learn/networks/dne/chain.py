"""All experts of a version, one after the other: each reads what the ones before it show of every layer.

What an earlier expert computes does not depend on later ones: not by shape, order or kernel. So its features are the
same bits whether or not experts came after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from core.learn.networks.dne.expert import Expert


@dataclass(frozen=True)
class Read:
    """What experts show to later ones: by expert and layer, normalised heads [B, N, d] and hidden ones [B, N, γ d].

    `features`: [B, d] of each.
    """

    heads: list[list[Tensor]] = field(default_factory=list)
    hidden: list[list[Tensor]] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)


def read(experts: Iterable[Expert], x: Tensor) -> Read:
    """One pass of all experts; of none, nothing."""
    found = Read()
    for expert in experts:
        found = follow(expert, found, x)
    return found


def follow(expert: Expert, before: Read, x: Tensor, drops: Tensor | None = None) -> Read:
    """What was read and the expert that comes next; only its own operations are done.

    drops: [layers, 2, B], what each of its branches is multiplied by in training.
    """
    r = expert.embed(x)
    shown: list[Tensor] = []
    wide: list[Tensor] = []
    for at, layer in enumerate(expert.layers):
        one, other = (None, None) if drops is None else drops[at]
        s = layer.attend(r, expert.token, one)  # type: ignore[operator]
        shown.append(layer.norm2(s))  # type: ignore[operator]
        heads = [*(of[at] for of in before.heads), shown[at]]
        wide.append(layer.hidden(shown[at], heads))  # type: ignore[operator]
        hidden = [*(of[at] for of in before.hidden), wide[at]]
        r = layer.mix(s, wide[at], hidden, other)  # type: ignore[operator]
    features = [*before.features, expert.feature(r)]
    return Read([*before.heads, shown], [*before.hidden, wide], features)


def drops(layers: int, most: float, batch: int, generator: torch.Generator) -> Tensor:
    """[layers, 2, B]: 0 with a probability that rises with the layer from 0 to `most`, else 1 / (1 - probability)."""
    rate = torch.linspace(0, most, layers)[:, None, None]
    kept = torch.rand(layers, 2, batch, generator=generator) >= rate
    return kept / (1 - rate)
