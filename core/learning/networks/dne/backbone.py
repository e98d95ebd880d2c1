"""The first expert as a backbone: a vision transformer that any method trains and `dne` expands."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from core.learning.networks.backbone import (
    SMALL_IMAGE,
    Backbone,
    ImageSpec,
    Layer,
    split_layers_evenly,
)
from core.learning.networks.dne.chain import run_expert_chain
from core.learning.networks.dne.expert import DneExpert, ExpertSizes

STAGES = 4


class DneArchitectureHyper(BaseModel):
    """Hyper-parameters of the architecture `dne`: sizes of the first expert.

    It has `heads` of `head_dim` channels in `layers` layers. The last layer attends from a class
    token. `expansion`: hidden channels per channel. `attention`: of patches, gated by positions
    ("gpsa") or plain ("mhsa"). `patch`: pixels a side; null: 4 up to 32-pixel images, 8 up to 64
    and 16 above.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    layers: int = Field(6, ge=2, le=48)
    head_dim: int = Field(32, ge=1, le=256)
    heads: int = Field(12, ge=1, le=64)
    expansion: int = Field(4, ge=1, le=16)
    attention: Literal["gpsa", "mhsa"] = "gpsa"
    patch: int | None = Field(None, ge=1, le=64)


class DneFirstExpertBackbone(Backbone):
    """The first expert of DNE as a backbone: features are the last layer's normalised class
    token.
    """

    ignored = ("head.",)

    def __init__(self, hyper: DneArchitectureHyper, image: ImageSpec) -> None:
        super().__init__()
        patch = hyper.patch or (16 if image.size > SMALL_IMAGE else 4 if image.size <= 32 else 8)
        # A convolution would fail as well, but with a message about kernel sizes.
        if patch > image.size:
            raise ValueError(f"the patch ({patch} pixels) is larger than the image ({image.size})")
        self.sizes = ExpertSizes(
            hyper.layers,
            hyper.head_dim,
            hyper.expansion,
            image.channels,
            patch,
            image.size // patch,
            hyper.attention == "gpsa",
        )
        self.expert = DneExpert(hyper.heads, 0, self.sizes)
        self.width = self.expert.width
        layers: list[Layer] = [(f"expert.layers.{i}",) for i in range(hyper.layers)]
        stages = split_layers_evenly(layers, STAGES)
        # Patches and positions move with the first blocks, which read them.
        stages[0].insert(0, ("expert.patch", "expert.position"))
        stages[-1].append(("expert.token", "expert.norm"))
        self.declare_stage_layers(stages)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, size, size] to features [B, heads · head_dim]."""
        return run_expert_chain([self.expert], x).features[0]
