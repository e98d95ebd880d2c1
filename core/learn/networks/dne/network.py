"""The network of dense expansion: experts of the architecture `dne`, each of which reads all earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from core.learn.networks.dne.backbone import DneBackbone
from core.learn.networks.dne.chain import run_chain, run_expert
from core.learn.networks.dne.expert import Expert, expert_rule
from core.learn.networks.dne.packed import Packed
from core.learn.networks.growing import GrowingNetwork, OlderFeatures
from core.learn.networks.init import fill
from core.learn.networks.network import Network


class ExpandedNetwork(GrowingNetwork):
    """A growing network whose experts are measured in heads."""

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
        """From a plain network and the result of `describe`, for a strict load right after."""
        return ExpandedNetwork(plain, description["experts"])

    def describe(self) -> dict[str, Any]:
        """For the manifest. `experts`: heads of each expert after the first."""
        return {"family": self.family, "experts": [expert.heads for expert in self.experts]}

    def chain(self) -> list[Expert]:
        """All experts, the oldest first."""
        return [self.backbone.expert, *self.experts]

    def make_expert(self, size: int) -> Expert:
        """An expert with `size` heads, of uninitialised memory."""
        return Expert(size, sum(e.heads for e in self.chain()), self.backbone.sizes)

    def init_expert(self, expert: nn.Module, generator: torch.Generator) -> None:
        """Draw its first weights from the generator."""
        fill(expert, expert_rule, generator)

    def packed(self) -> Packed:
        """The older experts as they are now, for passes in training.

        The caller keeps the result; the network does not.
        """
        return Packed(self.chain()[:-1])

    def older(self, x: Tensor, packed: Packed | None = None) -> OlderFeatures:
        """`packed`: read instead of the experts."""
        with torch.no_grad():
            found = run_chain(self.chain()[:-1], x) if packed is None else packed.run(x)
        return OlderFeatures(found.features, found)

    def newest(self, old: OlderFeatures, x: Tensor, drop_path: Tensor | None = None) -> Tensor:
        """The newest expert's feature [B, d], with a graph."""
        return run_expert(self.chain()[-1], old.intermediates, x, drop_path).features[-1]
