"""The network of dynamically expandable representation: one whole backbone per task."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from core.learning.networks.growing import GrowingNetwork, OlderExpertFeatures
from core.learning.networks.network import Network


class DerNetwork(GrowingNetwork):
    """The growing network of `der-net`, whose experts all have the first one's architecture.

    Each starts as a copy of the one before it.
    """

    family: ClassVar[str] = "der-net"

    @staticmethod
    def from_description(plain: Network, description: Mapping[str, Any]) -> DerNetwork:
        """Build the growing network from a plain one and the manifest's description, with weights
        to be loaded.
        """
        return DerNetwork(plain, [1] * int(description["experts"]))

    def describe_for_manifest(self) -> dict[str, Any]:
        """Describe the network for the manifest. `experts`: number of experts after the first."""
        return {"family": self.family, "experts": len(self.experts)}

    def make_expert(self, size: int) -> nn.Module:
        """Make the next expert as a copy of the backbone; its weights are set afterwards."""
        # A copy has the architecture; its weights are replaced by `init_expert_weights` or a load.
        return copy.deepcopy(self.backbone)

    def init_expert_weights(self, expert: nn.Module, generator: torch.Generator) -> None:
        """Initialise a new expert with the weights of the previous one."""
        before = self.experts[-2] if len(self.experts) > 1 else self.backbone
        expert.load_state_dict(before.state_dict())

    def compute_older_features(self, x: Tensor) -> OlderExpertFeatures:
        """Compute the features of all experts but the newest, without a graph."""
        with torch.no_grad():
            return OlderExpertFeatures(
                [expert(x) for expert in [self.backbone, *self.experts][:-1]]
            )

    def compute_newest_features(
        self, old: OlderExpertFeatures, x: Tensor, drop_path: Tensor | None = None
    ) -> Tensor:
        """Compute the newest expert's features [B, width]."""
        expert = self.experts[-1] if self.experts else self.backbone
        return expert(x)  # type: ignore[no-any-return]
