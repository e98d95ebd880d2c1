"""The network of dense expansion: experts of the architecture `dne`, each of which reads all before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from core.learn.networks.dne.backbone import DneBackbone
from core.learn.networks.dne.chain import follow, read
from core.learn.networks.dne.expert import Expert, expert_rule
from core.learn.networks.dne.packed import Packed
from core.learn.networks.growing import GrowingNetwork, Older
from core.learn.networks.init import fill
from core.learn.networks.network import Network


class ExpandedNetwork(GrowingNetwork):
    """The size of an expert is its number of heads."""

    family: ClassVar[str] = "dne"
    backbone: DneBackbone

    def __init__(self, plain: Network, sizes: Sequence[int] = ()) -> None:
        """Raises ValueError for a backbone that is no expert, and as `GrowingNetwork`."""
        if not isinstance(plain.backbone, DneBackbone):
            raise ValueError(
                f"experts are added to the architecture dne, not to {type(plain.backbone).__name__}"
            )
        super().__init__(plain, sizes)

    @staticmethod
    def of(plain: Network, description: Mapping[str, Any]) -> ExpandedNetwork:
        """From a plain network and what `describe` said, for a strict load right after."""
        return ExpandedNetwork(plain, description["experts"])

    def describe(self) -> dict[str, Any]:
        """For the manifest. `experts`: the heads of those after the first."""
        return {"family": self.family, "experts": [expert.heads for expert in self.experts]}

    def chain(self) -> list[Expert]:
        """All experts, the oldest first."""
        return [self.backbone.expert, *self.experts]

    def make(self, size: int) -> Expert:
        return Expert(size, sum(e.heads for e in self.chain()), self.backbone.sizes)

    def draw(self, expert: nn.Module, generator: torch.Generator) -> None:
        fill(expert, expert_rule, generator)

    def packed(self) -> Packed:
        """The older experts as they are now, for passes in training. Whoever trains keeps it; the network does not."""
        return Packed(self.chain()[:-1])

    def older(self, x: Tensor, packed: Packed | None = None) -> Older:
        """`packed`: read instead of the experts."""
        with torch.no_grad():
            found = read(self.chain()[:-1], x) if packed is None else packed.read(x)
        return Older(found.features, found)

    def newest(self, old: Older, x: Tensor, drops: Tensor | None = None) -> Tensor:
        return follow(self.chain()[-1], old.shown, x, drops).features[-1]
