"""Experts and one classifier over their features, which grows by rows for classes and by columns for experts.

Logits are summed expert by expert, in order: what a new expert adds to old classes is zero at first, so that they start
as the same bits. `backbone` is the first expert; `experts` are the later ones, a part each, never changed once their
task is over. So a version is a chain of shards and a classifier, and every earlier version's features lie on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from core.learn.networks.dne.backbone import DneBackbone
from core.learn.networks.dne.chain import Read, features, follow, read
from core.learn.networks.dne.expert import Expert, expert_rule
from core.learn.networks.heads import Head
from core.learn.networks.init import fill
from core.learn.networks.network import Network


class Classifier(Head):
    """Logits [B, rows] of features in blocks [B, widths[t]], added up in the order of blocks."""

    def __init__(self, widths: Sequence[int], rows: int = 0) -> None:
        super().__init__(sum(widths), rows)
        self.widths = list(widths)

    def forward(self, features: Tensor) -> Tensor:
        return blockwise(features, self.weight, self.bias, self.widths)

    def widen(self, width: int) -> None:
        """Columns of zeros for another block. The parameter is a new object afterwards."""
        self.widths.append(width)
        self.width += width
        rows = self.weight.shape[0]
        wider = torch.cat([self.weight.detach(), self.weight.new_zeros(rows, width)], 1)
        self.weight = nn.Parameter(wider, requires_grad=self.weight.requires_grad)


class ExpandedNetwork(Network):
    """`features`: [B, width of all experts together], in their order; `width` grows with them."""

    family: ClassVar[str] = "dne"
    backbone: DneBackbone

    def __init__(self, plain: Network, heads: Sequence[int] = ()) -> None:
        """Takes over the modules of a plain network. `heads`: of the later experts, uninitialised, for a strict load.

        Raises ValueError for a backbone that is no expert, and for the task scenario.
        """
        if not isinstance(plain.backbone, DneBackbone):
            raise ValueError(
                f"experts are added to the architecture dne, not to {type(plain.backbone).__name__}"
            )
        if plain.head is None:
            raise ValueError("experts share one classifier: the task scenario has a head for each task")
        super().__init__(plain.backbone, plain.scenario)
        self.classes = plain.classes
        self.experts = nn.ModuleList()
        classifier = Classifier([self.backbone.width], len(self.classes))
        classifier.load_state_dict(plain.head.state_dict())
        self.head: Classifier = classifier.to(plain.head.weight)
        self.expertise: nn.Linear | None = None
        self._asked = 0
        for count in heads:
            self._add(count)

    @staticmethod
    def of(plain: Network, description: Mapping[str, Any]) -> ExpandedNetwork:
        """From a plain network and what `describe` said, for a strict load right after."""
        return ExpandedNetwork(plain, description["experts"])

    def describe(self) -> dict[str, Any]:
        """For the manifest. `experts`: the heads of those after the first."""
        return {"family": self.family, "experts": [expert.heads for expert in self.experts]}

    # Growth.

    def expand(self, heads: int) -> None:
        """Have the next `grow` add an expert; old classes do not read it at first."""
        self._asked = heads

    def grow(self, task: int, classes: Sequence[str], init: str, generator: torch.Generator) -> None:
        """As a plain network, after the expert that was asked for, if any, whose weights are drawn first.

        With it comes `expertise`, for training only: from the newest feature to the task's classes after one for all
        older ones.
        """
        heads, self._asked = self._asked, 0
        if heads:
            fill(self._add(heads), expert_rule, generator)
        super().grow(task, classes, init, generator)
        if heads:
            like, width = self.head.weight, self.chain()[-1].width
            self.expertise = nn.Linear(width, 1 + len(classes), device=like.device, dtype=like.dtype)
            with torch.no_grad():
                drawn = torch.empty(1 + len(classes), width)
                self.expertise.weight.copy_(nn.init.trunc_normal_(drawn, std=0.02, generator=generator))
                self.expertise.bias.zero_()

    def _add(self, heads: int) -> Expert:
        """An expert of uninitialised memory, at the end."""
        expert = Expert(heads, sum(e.heads for e in self.chain()), self.backbone.sizes)
        like = self.head.weight
        self.experts.append(expert.to(like.device, like.dtype))
        self.head.widen(expert.width)
        return expert

    # Passes.

    def chain(self) -> list[Expert]:
        """All experts, the oldest first."""
        return [self.backbone.expert, *self.experts]

    def features(self, x: Tensor, task: int | None = None) -> Tensor:
        return torch.cat(features(self.chain(), x), 1)

    def answers(self, x: Tensor, classifiers: Sequence[Classifier]) -> list[Tensor]:
        """Logits of several versions of this chain from one pass: each classifier reads as many experts as it knew."""
        found = self.features(x)
        return [classifier(found[:, : classifier.width]) for classifier in classifiers]

    def read_old(self, x: Tensor) -> Read:
        """What all experts but the newest show to it. They are frozen: no graph."""
        older = self.chain()[:-1]
        if not older:
            nothing: list[list[Tensor]] = [[] for _ in self.backbone.expert.layers]
            return Read(nothing, nothing, [])
        with torch.no_grad():
            return read(older, x)

    def newest(self, old: Read, x: Tensor, drops: Tensor | None = None) -> Tensor:
        """The newest expert's feature [B, d], with a graph."""
        return follow(self.chain()[-1], old, x, drops)

    # Depth and parts.

    def depth_groups(self) -> list[list[str]]:
        """The classifier, then the newest expert; with one expert, as a plain network's."""
        if not self.experts:
            return super().depth_groups()
        newest = f"experts.{len(self.experts) - 1}.", "expertise."
        head = [name for name in self.state_dict() if name.startswith("head.")]
        return [head, [name for name in self.state_dict() if name.startswith(newest)]]

    def part_names(self) -> dict[str, list[str]]:
        """As a plain network's, and `expert.<t>` for each after the first, which is the backbone."""
        names = super().part_names()
        for at in range(len(self.experts)):
            prefix = f"experts.{at}."
            names[f"expert.{at + 2}"] = [name for name in self.state_dict() if name.startswith(prefix)]
        return names


def blockwise(features: Tensor, weight: Tensor, bias: Tensor, widths: Sequence[int]) -> Tensor:
    """bias + Σ_t f_t W_tᵀ, [B, rows]; blocks that `widths` does not cover are left out."""
    out = bias.expand(features.shape[0], -1)
    start = 0
    for width in widths:
        out = out + features[:, start : start + width] @ weight[:, start : start + width].T
        start += width
    return out
