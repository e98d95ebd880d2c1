"""torchvision's ResNets (18, 34, 50, 101, 152) without classifier, under torchvision's names.

Images up to 64 pixels get the CIFAR stem (3x3, stride 1, no pooling) unless the architecture says
otherwise. Larger ones get torchvision's, so that its checkpoints load. Stages are layer1 (with the
stem) … layer4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.nn import functional

from core.learning.networks.backbone import SMALL_IMAGE, Backbone, ImageSpec
from core.learning.torchvision_import import import_torchvision_models


class ResNetHyper(BaseModel):
    """Hyper-parameters of torchvision's ResNet architectures.

    `stem`: "small" up to 64 pixels, "standard" for larger images; "auto" chooses by image size.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    stem: Literal["auto", "small", "standard"] = "auto"


class ResNet(Backbone):
    """A ResNet backbone with features [B, 512] (18, 34) or [B, 2048] (50, 101, 152)."""

    ignored = ("fc.",)

    def __init__(self, name: str, hyper: ResNetHyper, image: ImageSpec) -> None:
        super().__init__()
        net = getattr(import_torchvision_models(), name)(weights=None)
        self.small = hyper.stem == "small" or (hyper.stem == "auto" and image.size <= SMALL_IMAGE)
        if self.small:
            self.conv1 = nn.Conv2d(image.channels, 64, 3, padding=1, bias=False)
        else:
            self.conv1 = nn.Conv2d(image.channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = net.bn1
        # A new module, since torchvision's works in place.
        self.relu = nn.ReLU()
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            net.layer1,
            net.layer2,
            net.layer3,
            net.layer4,
        )
        self.width = net.fc.in_features
        for module in self.modules():
            if isinstance(module, nn.ReLU):
                module.inplace = False  # hooks and per-sample gradients read its input
        stages = [
            [(f"layer{i}.{j}",) for j in range(len(getattr(net, f"layer{i}")))] for i in range(1, 5)
        ]
        self.declare_stage_layers([[("conv1", "bn1"), *stages[0]], *stages[1:]])

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, size, size] to features [B, width]."""
        x = self.relu(self.bn1(self.conv1(x)))
        # Small images would lose most of their pixels to the pool before the first block.
        if not self.small:
            x = functional.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


def make_resnet_builder(name: str) -> Callable[[ResNetHyper, ImageSpec], Backbone]:
    """Make the function that builds one ResNet variant, by torchvision's name."""
    return lambda hyper, image: ResNet(name, hyper, image)
