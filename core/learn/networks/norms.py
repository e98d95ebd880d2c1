"""Which layers are in training mode, and statistics of BatchNorm layers that are estimated anew."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from core.learn.networks.network import Network, in_eval

BatchNorm = nn.modules.batchnorm._BatchNorm


def estimate_statistics(network: Network, norms: list[BatchNorm], batches: Iterable[Tensor]) -> None:
    """These layers take the mean statistics of the batches, normalised float [B, C, S, S]; others stay as they are.

    A batch of one image is left out: it has no variance.
    """
    momenta = [norm.momentum for norm in norms]
    with torch.no_grad(), in_eval(network):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a mean over batches
            norm.train()
        for x in batches:
            if x.shape[0] > 1:
                network.features(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def set_modes(module: nn.Module, on: bool, *, fixed_norm: bool) -> None:
    """Training mode for modules with a parameter that moves, if `on`; eval mode for all others.

    fixed_norm: BatchNorm layers are in eval mode as well.
    """
    parameters = list(module.parameters())
    if parameters:
        on = on and any(p.requires_grad for p in parameters)
    module.training = on and not (fixed_norm and isinstance(module, BatchNorm))
    for child in module.children():
        set_modes(child, on, fixed_norm=fixed_norm)
