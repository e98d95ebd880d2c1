"""Networks that grow by an expert for each task and never touch the older ones, with one classifier over all features.

Logits are summed expert by expert, in order: what a new expert adds to old classes is zero at first, so that they start
as the same bits. `backbone` is the first expert; `experts` are the later ones, a part each, never changed once their
task is over. So a version is a chain of shards and a classifier, and every earlier version's features lie on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from core.learn.networks.heads import Head
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

    def draw_again(self, rows: int, generator: torch.Generator) -> None:
        """Draw what the first `rows` make of the newest block, and their biases, as torch's own linear layer would."""
        bound = self.width**-0.5
        with torch.no_grad():
            for part in (self.weight[:rows, -self.widths[-1] :], self.bias[:rows]):
                part.copy_(torch.empty(part.shape).uniform_(-bound, bound, generator=generator))


def blockwise(features: Tensor, weight: Tensor, bias: Tensor, widths: Sequence[int]) -> Tensor:
    """bias + Σ_t f_t W_tᵀ, [B, rows]; blocks that `widths` does not cover are left out."""
    out = bias.expand(features.shape[0], -1)
    start = 0
    for width in widths:
        out = out + features[:, start : start + width] @ weight[:, start : start + width].T
        start += width
    return out


@dataclass(frozen=True)
class Older:
    """What the older experts say of a batch: features [B, d] of each, and what else the newest one reads of them."""

    features: list[Tensor] = field(default_factory=list)
    shown: Any = None


class GrowingNetwork(Network):
    """`features`: [B, width of all experts together], in their order. Subclasses say what an expert is."""

    head: Classifier

    def __init__(self, plain: Network, sizes: Sequence[int] = ()) -> None:
        """Takes over the modules of a plain network. `sizes`: of the later experts, uninitialised, for a strict load.

        Raises ValueError in the task scenario.
        """
        if plain.head is None:
            raise ValueError("experts share one classifier: the task scenario has a head for each task")
        super().__init__(plain.backbone, plain.scenario)
        self.classes = plain.classes
        self.experts = nn.ModuleList()
        classifier = Classifier([self.backbone.width], len(self.classes))
        classifier.load_state_dict(plain.head.state_dict())
        self.head = classifier.to(plain.head.weight)
        self.expertise: nn.Linear | None = None
        self._asked = 0
        for size in sizes:
            self._add(size)

    # What an expert is.

    def make(self, size: int) -> nn.Module:
        """The next expert, of uninitialised memory."""
        raise NotImplementedError

    def draw(self, expert: nn.Module, generator: torch.Generator) -> None:
        """First weights of the expert that was added last."""
        raise NotImplementedError

    def older(self, x: Tensor) -> Older:
        """All experts but the newest. They are frozen: no graph."""
        raise NotImplementedError

    def newest(self, old: Older, x: Tensor, drops: Tensor | None = None) -> Tensor:
        """The newest expert's feature [B, d], with a graph. drops: [layers, 2, B], for those that drop branches."""
        raise NotImplementedError

    # Growth.

    def expand(self, size: int) -> None:
        """Have the next `grow` add an expert; old classes do not read it at first."""
        self._asked = size

    def grow(self, task: int, classes: Sequence[str], init: str, generator: torch.Generator) -> None:
        """As a plain network, after the expert that was asked for, if any, whose weights are drawn first.

        With it comes `expertise`, for training only: from the newest feature to the task's classes after one for all
        older ones.
        """
        size, self._asked = self._asked, 0
        if size:
            self.draw(self._add(size), generator)
        super().grow(task, classes, init, generator)
        if size:
            like, width = self.head.weight, self.head.widths[-1]
            self.expertise = nn.Linear(width, 1 + len(classes), device=like.device, dtype=like.dtype)
            with torch.no_grad():
                drawn = torch.empty(1 + len(classes), width)
                self.expertise.weight.copy_(nn.init.trunc_normal_(drawn, std=0.02, generator=generator))
                self.expertise.bias.zero_()

    def _add(self, size: int) -> nn.Module:
        expert = self.make(size)
        like = self.head.weight
        self.experts.append(expert.to(like.device, like.dtype))
        self.head.widen(int(expert.width))  # type: ignore[arg-type]
        return expert

    # Passes.

    def features(self, x: Tensor, task: int | None = None) -> Tensor:
        old = self.older(x)
        return torch.cat([*old.features, self.newest(old, x)], 1)

    def answers(self, x: Tensor, classifiers: Sequence[Classifier]) -> list[Tensor]:
        """Logits of several versions of this chain from one pass: each classifier reads as many experts as it knew."""
        found = self.features(x)
        return [classifier(found[:, : classifier.width]) for classifier in classifiers]

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
