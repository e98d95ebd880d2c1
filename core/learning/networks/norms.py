"""Training mode of layers, and new estimates of BatchNorm statistics."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from core.learning.networks.network import Network, use_eval_mode

BatchNorm = nn.modules.batchnorm._BatchNorm


def recompute_batch_norm_statistics(
    network: Network, norms: list[BatchNorm], batches: Iterable[Tensor]
) -> None:
    """Set the statistics of BatchNorm layers to their mean over batches of inputs.

    A batch of one image is skipped: it has no variance.

    Args:
        network: the network that the layers belong to.
        norms: the layers to estimate.
        batches: normalised float [B, C, S, S].
    """
    momenta = [norm.momentum for norm in norms]
    with torch.no_grad(), use_eval_mode(network):
        for norm in norms:
            # The old statistics are of other weights or other images.
            norm.reset_running_stats()
            norm.momentum = None  # momentum None averages over all batches
            norm.train()
        for x in batches:
            if x.shape[0] > 1:
                network.features(x)
    # Restored, since later training updates the statistics by it.
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def set_training_mode_of_trainable_modules(
    module: nn.Module, on: bool, *, fixed_norm: bool
) -> None:
    """Set training mode for modules with a trainable parameter, if `on`; eval mode for all others.

    fixed_norm: put BatchNorm layers into eval mode as well.
    """
    parameters = list(module.parameters())
    if parameters:
        on = on and any(p.requires_grad for p in parameters)
    module.training = on and not (fixed_norm and isinstance(module, BatchNorm))
    for child in module.children():
        set_training_mode_of_trainable_modules(child, on, fixed_norm=fixed_norm)
