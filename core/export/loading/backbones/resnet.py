"""ResNets of torchvision."""

from torch import nn

from core.export.loading.backbones.torchvision import models
from core.export.loading.start import config

# The card begins here.


def Backbone(tensors):
    net = getattr(models, config["architecture"]["name"])(weights=None)
    kernel = tensors["backbone.conv1.weight"].shape[-1]
    net.conv1 = nn.Conv2d(
        config["image"]["channels"], 64, kernel, stride=1 if kernel == 3 else 2, padding=kernel // 2, bias=False
    )
    if kernel == 3:  # the stem for small images has no pooling
        net.maxpool = nn.Identity()
    net.width = net.fc.in_features
    net.fc = nn.Identity()
    return net
