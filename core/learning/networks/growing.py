"""Networks that add one expert per task and never change the older ones, with one classifier.

Logits are summed expert by expert, in order. A new expert adds zero to old classes at first, so
their logits start as the same bits. `backbone` is the first expert. `experts` are the later ones, a
part each, which never change once their task is over. So every earlier version is a prefix of the
chain of experts with its own classifier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from core.learning.networks.heads import ClassifierHead
from core.learning.networks.network import Network


class FeatureBlocksClassifier(ClassifierHead):
    """A linear classifier [B, rows] of features in blocks [B, widths[t]], one block per expert."""

    def __init__(self, widths: Sequence[int], rows: int = 0) -> None:
        super().__init__(sum(widths), rows)
        self.widths = list(widths)

    def forward(self, features: Tensor) -> Tensor:
        """Map features [B, sum of widths] to logits [B, rows]."""
        return compute_linear_layer_block_by_block(features, self.weight, self.bias, self.widths)

    def append_zero_columns(self, width: int) -> None:
        """Append zero columns to the classifier for another expert's features."""
        self.widths.append(width)
        self.width += width
        rows = self.weight.shape[0]
        wider = torch.cat([self.weight.detach(), self.weight.new_zeros(rows, width)], 1)
        self.weight = nn.Parameter(wider, requires_grad=self.weight.requires_grad)

    def reinit_newest_columns_and_biases(self, rows: int, generator: torch.Generator) -> None:
        """Redraw the newest block's columns and the biases of the first rows as in nn.Linear."""
        bound = self.width**-0.5
        with torch.no_grad():
            for part in (self.weight[:rows, -self.widths[-1] :], self.bias[:rows]):
                part.copy_(torch.empty(part.shape).uniform_(-bound, bound, generator=generator))


def compute_linear_layer_block_by_block(
    features: Tensor, weight: Tensor, bias: Tensor, widths: Sequence[int]
) -> Tensor:
    """Compute logits bias + Σ_t f_t W_tᵀ, [B, rows]. Blocks beyond `widths` are left out."""
    out = bias.expand(features.shape[0], -1)
    start = 0
    for width in widths:
        # Block by block: one product over all columns would round the old classes' logits
        # differently.
        out = out + features[:, start : start + width] @ weight[:, start : start + width].T
        start += width
    return out


@dataclass(frozen=True)
class OlderExpertFeatures:
    """Outputs of the older experts for a batch, which the newest expert reads.

    Attributes:
        features: [B, d] of each expert.
        intermediates: outputs that the newest expert reads; None if it reads none.
    """

    features: list[Tensor] = field(default_factory=list)
    intermediates: Any = None


class GrowingNetwork(Network):
    """Base class of networks that grow by an expert per task; subclasses define the expert.

    `features` returns [B, width of all experts together], in their order.
    """

    head: FeatureBlocksClassifier
    renamed: ClassVar[Mapping[str, str]] = {"expertise.": "auxiliary."}

    def __init__(self, plain: Network, sizes: Sequence[int] = ()) -> None:
        """Take over the modules of a plain network.

        `sizes`: of the later experts, uninitialised, for a strict load.

        Raises ValueError in the task scenario.
        """
        if plain.head is None:
            raise ValueError(
                "experts share one classifier: the task scenario has a head for each task"
            )
        super().__init__(plain.backbone, plain.scenario)
        self.classes = plain.classes
        self.experts = nn.ModuleList()
        classifier = FeatureBlocksClassifier([self.backbone.width], len(self.classes))
        classifier.load_state_dict(plain.head.state_dict())
        # To the device and number format of the head that it replaces.
        self.head = classifier.to(plain.head.weight)
        self.auxiliary: nn.Linear | None = None
        self._pending_size = 0
        for size in sizes:
            self._append_expert(size)

    # Definition of an expert, by subclasses.

    def make_expert(self, size: int) -> nn.Module:
        """Make the next expert, with uninitialised weights."""
        raise NotImplementedError

    def init_expert_weights(self, expert: nn.Module, generator: torch.Generator) -> None:
        """Initialise the weights of the expert that was added last."""
        raise NotImplementedError

    def compute_older_features(self, x: Tensor) -> OlderExpertFeatures:
        """Compute the outputs of all experts but the newest, for x [B, C, S, S].

        They are frozen, so there is no graph.
        """
        raise NotImplementedError

    def compute_newest_features(
        self, old: OlderExpertFeatures, x: Tensor, drop_path: Tensor | None = None
    ) -> Tensor:
        """Compute the newest expert's feature [B, d], with a graph. drop_path: [layers, 2, B]."""
        raise NotImplementedError

    # Growth.

    def set_size_of_next_expert(self, size: int) -> None:
        """Set the size of the expert that the next `add_task_classes` adds."""
        # Added only by `add_task_classes`, which has the generator that draws its weights.
        self._pending_size = size

    def add_task_classes(
        self, task: int, classes: Sequence[str], init: str, generator: torch.Generator
    ) -> None:
        """Add a task's classes to the head, after adding the expert that `set_size_of_next_expert`
        announced.

        The expert's weights are drawn first. It comes with the classifier `auxiliary`, for training
        only. That maps the newest feature to this task's classes, after one output for all older
        ones.
        """
        size, self._pending_size = self._pending_size, 0
        if size:
            # Before the head's rows: the order of draws determines the weights.
            self.init_expert_weights(self._append_expert(size), generator)
        super().add_task_classes(task, classes, init, generator)
        if size:
            head_weight, width = self.head.weight, self.head.widths[-1]
            self.auxiliary = nn.Linear(
                width, 1 + len(classes), device=head_weight.device, dtype=head_weight.dtype
            )
            with torch.no_grad():
                drawn = torch.empty(1 + len(classes), width)
                self.auxiliary.weight.copy_(
                    nn.init.trunc_normal_(drawn, std=0.02, generator=generator)
                )
                self.auxiliary.bias.zero_()

    def _append_expert(self, size: int) -> nn.Module:
        """Append an expert to the chain, and a block to the classifier."""
        expert = self.make_expert(size)
        head_weight = self.head.weight
        self.experts.append(expert.to(head_weight.device, head_weight.dtype))
        self.head.append_zero_columns(int(expert.width))  # type: ignore[arg-type]
        return expert

    # Passes.

    def features(self, x: Tensor, task: int | None = None) -> Tensor:
        """Map [B, channels, size, size] to the joined features of all experts, [B, width of all
        experts].

        Features in place of images are returned unchanged.
        """
        if x.dim() == 2:
            return x
        old = self.compute_older_features(x)
        return torch.cat([*old.features, self.compute_newest_features(old, x)], 1)

    def compute_logits_of_several_versions(
        self, x: Tensor, classifiers: Sequence[FeatureBlocksClassifier]
    ) -> list[Tensor]:
        """Compute the logits of several versions of this chain of experts in one pass.

        Each classifier reads its own experts.
        """
        features = self.features(x)
        return [classifier(features[:, : classifier.width]) for classifier in classifiers]

    # Depth and parts.

    def list_tensor_names_by_depth(self) -> list[list[str]]:
        """Group parameter names by training depth: classifier, then the newest expert."""
        if not self.experts:
            return super().list_tensor_names_by_depth()
        newest = f"experts.{len(self.experts) - 1}.", "auxiliary."
        head = [name for name in self.state_dict() if name.startswith("head.")]
        return [head, [name for name in self.state_dict() if name.startswith(newest)]]

    def list_tensor_names_by_part(self) -> dict[str, list[str]]:
        """List the parts of a plain network, and `expert.<t>` for each expert after the first.

        The first expert is the backbone.
        """
        names = super().list_tensor_names_by_part()
        for at in range(len(self.experts)):
            prefix = f"experts.{at}."
            names[f"expert.{at + 2}"] = [
                name for name in self.state_dict() if name.startswith(prefix)
            ]
        return names
