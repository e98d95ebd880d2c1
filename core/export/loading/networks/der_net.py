"""Dynamically expandable representation: backbones side by side."""

import torch
from torch import nn

from core.export.loading.backbones.mlp import Backbone
from core.export.loading.networks.plain import Network
from core.export.loading.start import config

# The card begins here.


class GrowingNetwork(Network):
    """An expert for each task, the newest last, and one classifier over the features of all."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.head = nn.Linear(*tensors["head.weight"].T.shape)
        later = config["network"]["experts"]
        self.experts = nn.ModuleList(Backbone(tensors) for _ in range(later))

    def forward(self, x, task=None):
        return self.head(torch.cat([expert(x) for expert in [self.backbone, *self.experts]], 1))
