"""Dense network expansion: experts in a chain."""

from torch import nn

from core.export.loading.backbones.dne import Expert, chain
from core.export.loading.networks.plain import Network
from core.export.loading.start import config

# The card begins here.


class GrowingNetwork(Network):
    """An expert for each task, the newest last, and one classifier over the features of all."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.head = nn.Linear(*tensors["head.weight"].T.shape)
        later = config["network"]["experts"]
        self.experts = nn.ModuleList(Expert(tensors, f"experts.{i}") for i in range(len(later)))

    def forward(self, x, task=None):
        return self.head(chain([self.backbone.expert, *self.experts], x))
