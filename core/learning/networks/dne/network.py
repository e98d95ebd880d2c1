"""The network of dense expansion: experts that each read all earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from core.learning.networks.dne.backbone import DneFirstExpertBackbone
from core.learning.networks.dne.chain import run_expert_chain, run_next_expert_of_chain
from core.learning.networks.dne.expert import DneExpert, initialise_expert_module
from core.learning.networks.dne.packed import PackedExperts
from core.learning.networks.growing import GrowingNetwork, OlderExpertFeatures
from core.learning.networks.init import initialise_weights
from core.learning.networks.network import Network


class DneNetwork(GrowingNetwork):
    """The growing network of DNE, whose experts are measured in attention heads."""

    family: ClassVar[str] = "dne"
    backbone: DneFirstExpertBackbone

    def __init__(self, plain: Network, sizes: Sequence[int] = ()) -> None:
        """Add experts to a plain network.

        Raises ValueError for a backbone that is no expert, and as `GrowingNetwork` does.
        """
        if not isinstance(plain.backbone, DneFirstExpertBackbone):
            raise ValueError(
                f"experts are added to the architecture dne, not to {type(plain.backbone).__name__}"
            )
        super().__init__(plain, sizes)

    @staticmethod
    def from_description(plain: Network, description: Mapping[str, Any]) -> DneNetwork:
        """Build the growing network from a plain one and the manifest's description, with weights
        to be loaded.
        """
        return DneNetwork(plain, description["experts"])

    def describe_for_manifest(self) -> dict[str, Any]:
        """Describe the network of experts for the manifest.

        `experts`: heads of each expert after the first.
        """
        return {"family": self.family, "experts": [expert.heads for expert in self.experts]}

    def list_experts(self) -> list[DneExpert]:
        """Return all experts, the oldest first."""
        return [self.backbone.expert, *self.experts]

    def make_expert(self, size: int) -> DneExpert:
        """Make an expert with `size` heads, with uninitialised weights."""
        return DneExpert(size, sum(e.heads for e in self.list_experts()), self.backbone.sizes)

    def init_expert_weights(self, expert: nn.Module, generator: torch.Generator) -> None:
        """Draw a new expert's initial weights from the generator."""
        initialise_weights(expert, initialise_expert_module, generator)

    def pack_older_experts(self) -> PackedExperts:
        """Pack copies of the older experts' weights, to run them at once in training.

        The caller holds the result; the network does not.
        """
        # Without the newest expert, which moves in every step.
        return PackedExperts(self.list_experts()[:-1])

    def compute_older_features(
        self, x: Tensor, packed: PackedExperts | None = None
    ) -> OlderExpertFeatures:
        """Compute the outputs of all experts but the newest, without a graph.

        packed: used instead of the experts if given.
        """
        with torch.no_grad():
            # Without a graph: older experts are frozen, and activations of all of them would fill
            # the memory.
            outputs = (
                run_expert_chain(self.list_experts()[:-1], x)
                if packed is None
                else packed.run_packed_chain(x)
            )
        return OlderExpertFeatures(outputs.features, outputs)

    def compute_newest_features(
        self, old: OlderExpertFeatures, x: Tensor, drop_path: Tensor | None = None
    ) -> Tensor:
        """Compute the newest expert's feature [B, d], with a graph."""
        return run_next_expert_of_chain(
            self.list_experts()[-1], old.intermediates, x, drop_path
        ).features[-1]
