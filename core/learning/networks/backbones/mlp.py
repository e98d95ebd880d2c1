"""Multilayer perceptron on flattened images: the network of the MNIST protocols (784-400-400-10).

Every hidden layer is a stage. Features are the activations of the last one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from core.learning.networks.backbone import Backbone, ImageSpec


class MlpHyper(BaseModel):
    """Hyper-parameters of the architecture `mlp`: hidden sizes, input side first."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    hidden: list[Annotated[int, Field(ge=1, le=16384)]] = Field(
        default=[400, 400], min_length=1, max_length=16
    )


class MlpBackbone(Backbone):
    """A multilayer perceptron backbone of layers fc1 … fcL with ReLU; features are [B,
    hidden[-1]].
    """

    def __init__(self, hyper: MlpHyper, image: ImageSpec) -> None:
        super().__init__()
        sizes = [image.channels * image.size**2, *hyper.hidden]
        self.names = [f"fc{i}" for i in range(1, len(sizes))]
        for name, (inputs, outputs) in zip(self.names, pairwise(sizes), strict=True):
            self.add_module(name, nn.Linear(inputs, outputs))
        self.relu = nn.ReLU()
        self.width = sizes[-1]
        self.declare_stage_layers([[(name,)] for name in self.names])

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, size, size] to features [B, hidden[-1]]."""
        x = x.flatten(1)
        for name in self.names:
            x = self.relu(self.get_submodule(name)(x))
        return x
