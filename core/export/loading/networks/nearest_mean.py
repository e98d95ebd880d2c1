"""Answers by the nearest class mean."""

import torch
from torch.nn import functional as F

from core.export.loading.networks.plain import Network
from core.export.loading.start import config

# The card begins here.


class NearestMeanNetwork(Network):
    """Answers with the class whose mean is nearest (iCaRL): minus the squared distance to each, between unit vectors."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.register_buffer("class_means", torch.empty_like(tensors["class_means"]))

    def forward(self, x, task=None):
        x, means = F.normalize(self.backbone(x)), self.class_means
        if len(self.heads):  # the means of all tasks' classes, one task after the other
            sizes = {head["task"]: len(head["classes"]) for head in config["heads"]}
            means = dict(zip(sizes, means.split(list(sizes.values()))))[task]
        return 2 * x @ means.T - means.square().sum(1) - x.square().sum(1, keepdim=True)
