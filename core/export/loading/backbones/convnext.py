"""ConvNeXt of torchvision."""

from torch import nn

from core.export.loading.backbones.torchvision import models
from core.export.loading.start import config

# The card begins here.


def Backbone(tensors):
    net = getattr(models, config["architecture"]["name"])(weights=None, stochastic_depth_prob=0.0)
    outputs, channels, kernel, _ = tensors["backbone.features.0.0.weight"].shape
    net.features[0][0] = nn.Conv2d(channels, outputs, kernel, stride=kernel)
    net.width = net.classifier[2].in_features
    net.classifier = nn.Sequential(net.classifier[0], nn.Flatten(1))
    return net
