"""A vision transformer with learned prompt tokens: the network of visual prompt tuning.

p tokens are inserted after the class token and before the patches, without positions (Jia et al.
2022, arXiv 2203.12119). Shallow: before the first block only; their outputs run through the other
blocks. Deep: before every block, in place of the last block's outputs for them. There is one set of
prompts for all tasks, or one per task. A set is drawn when the network grows for the first task
that needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from core.learning.networks.backbones.torchvision_vit import VisionTransformer
from core.learning.networks.network import Network

SHARED = "shared"


class PromptedNetwork(Network):
    """A network with learned prompt tokens in its vision transformer (visual prompt tuning).

    With a prompt set per task, `task` chooses the set as well as the head. `prompts[set]` is float
    [blocks that take prompts, p, width]; p may be 0.
    """

    family: ClassVar[str] = "vpt"
    backbone: VisionTransformer

    def __init__(
        self, plain: Network, prompts: int, deep: bool, tasks: Sequence[int] | None = None
    ) -> None:
        """Take over the modules of a plain network.

        Sets are uninitialised memory, for a strict load.

        `prompts`: tokens per block. `tasks`: those with a set of their own; None: one set for all,
        which does not exist before the first task. Raises ValueError for a backbone that is no
        vision transformer.
        """
        if not isinstance(plain.backbone, VisionTransformer):
            raise ValueError(
                f"prompts need a vision transformer, not {type(plain.backbone).__name__}"
            )
        super().__init__(plain.backbone, plain.scenario)
        self.classes, self.head = plain.classes, plain.head
        self.head_classes, self.heads = plain.head_classes, plain.heads
        self.tokens = prompts
        self.deep = deep
        self.per_task = tasks is not None
        self.prompts = nn.ParameterDict()
        for task in tasks or ():
            self._add_prompt_set(str(task))

    @staticmethod
    def from_description(plain: Network, description: Mapping[str, Any]) -> PromptedNetwork:
        """Build the network with prompts from a plain one and the manifest's description, weights
        loaded later.
        """
        network = PromptedNetwork(
            plain, description["prompts"], description["deep"], description["tasks"]
        )
        if not network.per_task:
            network._add_prompt_set(SHARED)
        return network

    def describe_for_manifest(self) -> dict[str, Any]:
        """Describe the network's prompts for the manifest.

        `tasks` lists those with a prompt set of their own; null: one set for all.
        """
        tasks = [int(name) for name in self.prompts] if self.per_task else None
        return {"family": self.family, "prompts": self.tokens, "deep": self.deep, "tasks": tasks}

    def features(self, x: Tensor, task: int | None = None) -> Tensor:
        """Compute features [B, width] of images, with the task's prompt tokens if there are any.

        Features [B, width] in place of images are returned unchanged.
        """
        if x.dim() == 2:
            return x
        name, encoder = self._get_prompt_set_name(task), self.backbone.encoder
        # Without tokens nothing is inserted: an empty tensor that requires gradients would take
        # attention off its fast path, and results would differ from a linear probe in the last
        # bits.
        prompts = self.prompts[name] if self.tokens and name in self.prompts else ()
        x = self.backbone.embed_class_token_and_patches(x)
        x = encoder.dropout(x + encoder.pos_embedding)
        for block, layer in enumerate(encoder.layers):
            if block < len(prompts):
                # From the second block on, new prompts replace the outputs of the last ones.
                patches = x[:, 1 if block == 0 else 1 + self.tokens :]
                x = torch.cat([x[:, :1], prompts[block].expand(len(x), -1, -1), patches], dim=1)
            x = layer(x)
        return encoder.ln(x)[:, 0]  # type: ignore[no-any-return]

    def add_task_classes(
        self, task: int, classes: Sequence[str], init: str, generator: torch.Generator
    ) -> None:
        """Add a task's classes to the head; then draw the task's prompt set if it does not
        exist.
        """
        super().add_task_classes(task, classes, init, generator)
        name = self._get_prompt_set_name(task)
        if name not in self.prompts:
            bound = self.prompt_init_bound
            self._add_prompt_set(
                name, torch.empty(self._prompt_shape).uniform_(-bound, bound, generator=generator)
            )

    @property
    def prompt_init_bound(self) -> float:
        """Bound v of the initial uniform distribution U(-v, v) of prompts: sqrt(6 / (3 P² + D)).

        P is the pixels a side of a patch, D the width.
        """
        patch = self.backbone.conv_proj.weight.shape[-1]
        return math.sqrt(6 / (3 * patch**2 + self.backbone.width))

    def list_tensor_names_by_part(self) -> dict[str, list[str]]:
        """List the stored parts of a plain network, and one for each prompt set.

        It is called `prompts` or `prompts.<task>`.
        """
        names = super().list_tensor_names_by_part()
        for name in self.prompts:
            names["prompts" if name == SHARED else f"prompts.{name}"] = [f"prompts.{name}"]
        return names

    @property
    def _prompt_shape(self) -> tuple[int, int, int]:
        return (
            len(self.backbone.encoder.layers) if self.deep else 1,
            self.tokens,
            self.backbone.width,
        )

    def _add_prompt_set(self, name: str, values: Tensor | None = None) -> None:
        """Add a set of prompt tokens, uninitialised if no values are given."""
        backbone_parameter = next(self.backbone.parameters())
        values = torch.empty(self._prompt_shape) if values is None else values
        # Drawn on the CPU and then moved: every device starts from the same prompts.
        self.prompts[name] = nn.Parameter(
            values.to(backbone_parameter.device, backbone_parameter.dtype)
        )

    def _get_prompt_set_name(self, task: int | None) -> str:
        """Return the parameter name of a task's prompt set."""
        return str(task) if self.per_task else SHARED
