"""A network that is linear in its displacement."""

import torch
from torch import nn

from core.export.loading.backbones.mlp import Backbone
from core.export.loading.networks.plain import Network
from core.export.loading.start import config

# The card begins here.
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.backends.mha.set_fastpath_enabled(False)  # it has no derivative


def edited(module):
    """With leaky activations and, where its weights are frozen, each batch norm within the convolution before it."""
    before, slope = None, config["network"]["slope"]
    for name, child in list(module.named_children()):
        if isinstance(child, nn.ReLU):
            setattr(module, name, nn.LeakyReLU(slope))
        elif isinstance(child, nn.BatchNorm2d) and config["network"]["frozen"]:
            before.bias = nn.Parameter(torch.zeros(before.out_channels))
            setattr(module, name, nn.Identity())
        edited(child)
        before = child
    return module


class LinearisedNetwork(Network):
    """The backbone's first-order expansion around frozen weights, in the displacement that was learned (DLCFT)."""

    def __init__(self, tensors):
        super().__init__(tensors)
        edited(self.backbone)
        self.displacement = edited(Backbone(tensors)) if config["network"]["frozen"] else None
        rows = {name.removeprefix("reference."): t for name, t in tensors.items() if name.startswith("reference.")}
        self.reference = nn.ParameterDict({name: torch.empty_like(t) for name, t in rows.items()})

    def forward(self, x, task=None):
        if self.displacement is None:
            return super().forward(x, task)
        weights, moved = (dict(net.named_parameters()) for net in (self.backbone, self.displacement))
        with sdpa_kernel(SDPBackend.MATH):
            value, tangent = torch.func.jvp(
                lambda w: torch.func.functional_call(self.backbone, w, (x,)), (weights,), (moved,)
            )
        head = self.heads[str(task)] if len(self.heads) else self.head
        if not len(self.reference):
            return head(value + tangent)
        return head(value) + tangent @ self.reference[str(task) if len(self.heads) else "shared"].T
