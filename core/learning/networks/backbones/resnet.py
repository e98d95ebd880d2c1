"""ResNets for small images: ResNet-20 and the slim ResNet-18 of GEM's protocols.

He et al. 2015; Lopez-Paz & Ranzato 2017. 3x3 stem without pooling, stages of two-convolution
blocks, global average pooling. No operation is in place, so that per-sample gradients, jvp and
hooks see every activation. Activations are modules, which edits can replace. The stem belongs to
the first stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from core.learning.networks.backbone import Backbone, ImageSpec, Layer

# Below eight channels torch 2.13 writes out of bounds: backward of a strided 1x1 channels_last
# convolution.
MIN_WIDTH = 8


class ResNet20Hyper(BaseModel):
    """Hyper-parameters of the architecture `resnet20`.

    `width`: channels of the first stage; the others have two and four times as many.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    width: int = Field(16, ge=MIN_WIDTH, le=256)


class SlimResNet18Hyper(BaseModel):
    """Hyper-parameters of the architecture `slim-resnet18`.

    `width`: channels of the first stage (64 in ResNet-18); the others have two, four and eight
    times as many.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    width: int = Field(20, ge=MIN_WIDTH, le=256)


class ResidualBlock(nn.Module):
    """A residual block of two convolutions: relu(bn(conv(relu(bn(conv(x))))) + shortcut(x)).

    The shortcut is a 1x1 convolution where the shape changes.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, outputs, H / stride, W / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out)) + shortcut
        return self.relu(out)  # type: ignore[no-any-return]


class SmallResNet(Backbone):
    """A small ResNet backbone with `blocks[i]` blocks of `width * 2**i` channels in stage i.

    Each stage after the first halves the image.
    """

    def __init__(self, width: int, blocks: Sequence[int], image: ImageSpec) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(image.channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.depths = tuple(blocks)
        stages: list[list[Layer]] = []
        inputs = width
        for i, depth in enumerate(blocks):
            outputs = width * 2**i
            # The first stage keeps the resolution, since the images are small.
            sizes = [(inputs, outputs, 1 if i == 0 else 2)] + [(outputs, outputs, 1)] * (depth - 1)
            self.add_module(
                f"layer{i + 1}", nn.Sequential(*[ResidualBlock(*size) for size in sizes])
            )
            stages.append([(f"layer{i + 1}.{j}",) for j in range(depth)])
            inputs = outputs
        self.width = inputs
        stages[0].insert(0, ("conv1", "bn1"))
        self.declare_stage_layers(stages)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, size, size] to features [B, width]."""
        x = self.relu(self.bn1(self.conv1(x)))
        for i in range(len(self.depths)):
            x = self.get_submodule(f"layer{i + 1}")(x)
        return x.mean((2, 3))


def build_resnet20(hyper: ResNet20Hyper, image: ImageSpec) -> Backbone:
    """Build ResNet-20: three stages of three blocks.

    He's form with 1x1 projections as shortcuts (his option B).
    """
    return SmallResNet(hyper.width, (3, 3, 3), image)


def build_slim_resnet18(hyper: SlimResNet18Hyper, image: ImageSpec) -> Backbone:
    """Build the slim ResNet-18: four stages of two blocks.

    ResNet-18 with narrow stages and a CIFAR stem (Lopez-Paz & Ranzato 2017).
    """
    return SmallResNet(hyper.width, (2, 2, 2, 2), image)
