"""Three convolutions and one hidden layer: a network that learns small images on a CPU in seconds.

3x3 convolutions 32/64/128 with ReLU, 2x2 max pooling after the first two, then average pooling to
3x3 at every input size, 1152 -> 128, head. No normalisation layer. With one channel and ten
classes: 241,546 parameters. The stages are conv1, conv2, conv3 and fc1.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.nn import functional

from core.learning.networks.backbone import Backbone, ImageSpec


class SmallCnnHyper(BaseModel):
    """Hyper-parameters of the architecture `small-cnn`, which has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SmallCnn(Backbone):
    """A small convolutional backbone with features [B, 128].

    Images have at least 4 pixels a side.
    """

    def __init__(self, hyper: SmallCnnHyper, image: ImageSpec) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(image.channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1)
        self.fc1 = nn.Linear(128 * 3 * 3, 128)
        self.relu = nn.ReLU()
        self.width = 128
        self.declare_stage_layers([[("conv1",)], [("conv2",)], [("conv3",)], [("fc1",)]])

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, size, size] to features [B, 128]."""
        x = functional.max_pool2d(self.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(self.relu(self.conv2(x)), 2)
        # Three by three at every size, so that the hidden layer has one shape.
        x = functional.adaptive_avg_pool2d(self.relu(self.conv3(x)), (3, 3))
        return self.relu(self.fc1(x.flatten(1)))  # type: ignore[no-any-return]
