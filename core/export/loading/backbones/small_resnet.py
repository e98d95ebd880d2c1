"""ResNets for small images: resnet20 and slim-resnet18."""

from torch import nn

from core.export.loading.start import config

# The card begins here.


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU()

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + shortcut)


class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        width = tensors["backbone.conv1.weight"].shape[0]
        self.conv1 = nn.Conv2d(config["image"]["channels"], width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.stages, inputs = 0, width
        while f"backbone.layer{self.stages + 1}.0.conv1.weight" in tensors:
            stage, outputs, blocks = self.stages + 1, width * 2**self.stages, []
            while f"backbone.layer{stage}.{len(blocks)}.conv1.weight" in tensors:
                blocks.append(Block(inputs, outputs, 2 if stage > 1 and not blocks else 1))
                inputs = outputs
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
            self.stages = stage
        self.width = inputs

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return x.mean((2, 3))
