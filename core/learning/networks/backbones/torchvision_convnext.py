"""torchvision's ConvNeXts (tiny, small, base, large) without classifier, under torchvision's names.

Images up to 64 pixels get a 2x2 stem of stride 2 in place of 4x4 of stride 4, unless the
architecture says otherwise. A downsampling layer belongs to the stage (and block) after it, the
stem to the first, the final norm to the last. No stochastic depth: a run must not depend on the
global generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from core.learning.networks.backbone import SMALL_IMAGE, Backbone, ImageSpec, Layer
from core.learning.torchvision_import import import_torchvision_models

# The initial value of the paper and of torchvision.
LAYER_SCALE = 1e-6


class ConvNextHyper(BaseModel):
    """Hyper-parameters of the ConvNeXt architectures.

    `stem`: "small" (stride 2), "standard" (stride 4), or "auto": by image size.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    stem: Literal["auto", "small", "standard"] = "auto"


class ConvNextBackbone(Backbone):
    """A ConvNeXt backbone with features [B, 768 | 768 | 1024 | 1536].

    Features are taken after global average pooling and the final norm.
    """

    ignored = ("classifier.2.",)

    def __init__(self, name: str, hyper: ConvNextHyper, image: ImageSpec) -> None:
        super().__init__()
        net = getattr(import_torchvision_models(), name)(weights=None, stochastic_depth_prob=0.0)
        small = hyper.stem == "small" or (hyper.stem == "auto" and image.size <= SMALL_IMAGE)
        stride = 2 if small else 4
        smallest = stride * 8  # stem, then three halvings
        if image.size < smallest:
            raise ValueError(f"{name} with this stem needs images of at least {smallest} pixels")
        self.features = net.features
        # Always replaced: torchvision's stem reads three channels only.
        self.features[0][0] = nn.Conv2d(
            image.channels, net.features[0][0].out_channels, stride, stride=stride
        )
        self.classifier = nn.Sequential(net.classifier[0])
        self.width = net.classifier[2].in_features
        stages: list[list[Layer]] = []
        for i in (1, 3, 5, 7):
            stage: list[Layer] = [(f"features.{i}.{j}",) for j in range(len(net.features[i]))]
            if i > 1:
                stage[0] = (f"features.{i - 1}", *stage[0])
            stages.append(stage)
        stages[0].insert(0, ("features.0",))
        stages[-1].append(("classifier.0",))
        self.declare_stage_layers(stages)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, size, size] to features [B, width]."""
        x = self.features(x).mean((2, 3), keepdim=True)
        return self.classifier(x).flatten(1)  # type: ignore[no-any-return]


def make_convnext_builder(name: str) -> Callable[[ConvNextHyper, ImageSpec], Backbone]:
    """Make the function that builds one ConvNeXt variant, by torchvision's name."""
    return lambda hyper, image: ConvNextBackbone(name, hyper, image)


def initialise_convnext_module(name: str, module: nn.Module, generator: torch.Generator) -> bool:
    """Initialise a ConvNeXt module as torchvision does: truncated N(0, 0.02), biases 0, layer scale
    1e-6.

    Returns false for a module without a rule.
    """
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.trunc_normal_(module.weight, std=0.02, generator=generator)
        if module.bias is not None:
            module.bias.zero_()
        return True
    if isinstance(scale := getattr(module, "layer_scale", None), Tensor):
        scale.fill_(LAYER_SCALE)
        return True
    return False
