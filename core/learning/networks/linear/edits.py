"""Changes of a backbone before it is linearised: its activations and its batch norms.

A linear model of a network is more accurate where the network is smoother: LeakyReLU in place of
ReLU (Achille et al. 2021, LQF). A batch norm in eval mode is a fixed affine map, and is folded into
the convolution before it (Mu et al. 2020), so every remaining weight belongs to a convolution or a
linear layer.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from core.learning.networks.backbone import Backbone


def replace_relu_by_leaky_relu(backbone: Backbone, slope: float) -> None:
    """Replace every ReLU by LeakyReLU(slope), in place.

    Slope 0 leaves them. Stored tensors stay the same.
    """
    if slope == 0:
        return
    # A list, since the loop replaces children while it walks.
    for module in list(backbone.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, name, nn.LeakyReLU(slope))


def fold_batch_norms(backbone: Backbone) -> None:
    """Fold every BatchNorm2d into the convolution before it, by its running statistics, in place.

    W' = W · s, b' = shift + (b - mean) · s with s = scale / √(var + eps), one number per output
    channel. A norm belongs to the convolution that is declared just before it in the same module.
    Computed in float64 and rounded once. Raises ValueError where no convolution fits.
    """
    for name, module in list(backbone.named_modules()):
        children = list(module.named_children())
        for (before, conv), (after, norm) in pairwise(children):
            if not isinstance(norm, nn.BatchNorm2d):
                continue
            if not isinstance(conv, nn.Conv2d) or conv.out_channels != norm.num_features:
                raise ValueError(
                    f"{name}.{after} does not follow a convolution of its size, but {before}"
                )
            _fold_norm_into_convolution(conv, norm)
            # Not removed: `nn.Sequential` numbers its children, and names of later layers would
            # shift.
            setattr(module, after, nn.Identity())
    remaining_norms = [
        name for name, module in backbone.named_modules() if isinstance(module, nn.BatchNorm2d)
    ]
    if remaining_norms:
        raise ValueError(f"no convolution stands before {remaining_norms[0]}")


@torch.no_grad()
def _fold_norm_into_convolution(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    """Change a convolution to include the batch norm that follows it.

    Raises ValueError for a norm without running statistics.
    """
    if norm.running_mean is None or norm.running_var is None:
        raise ValueError("a batch norm without running statistics cannot be folded")
    weight = conv.weight
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    shift = torch.zeros_like(scale)
    if norm.affine:
        scale, shift = scale * norm.weight.double(), norm.bias.double()
    bias = 0.0 if conv.bias is None else conv.bias.double()
    conv.bias = nn.Parameter((shift + (bias - norm.running_mean.double()) * scale).to(weight.dtype))
    weight.copy_((weight.double() * scale[:, None, None, None]).to(weight.dtype))
