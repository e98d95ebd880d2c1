"""Networks of timm."""

from core.export.loading.backbones.torchvision import models
from core.export.loading.start import config

# The card begins here.
import timm


def Backbone(tensors):
    net = timm.create_model(config["architecture"]["model"], num_classes=0, **config["timm"])
    net.width = getattr(net, "head_hidden_size", None) or net.num_features
    wanted = {f"backbone.{name}" for name in net.state_dict()}
    for name in [name for name in tensors if name.startswith("backbone.") and name not in wanted]:
        del tensors[name]  # the classifier of the pretrained weights
    return net
