"""Cotangents: vectors v of the outputs with Σ v vᵀ the Hessian of the loss by the outputs.

For half the squared error that Hessian is the identity I. All basis vectors give it exactly; random
signs give it on average, with less variance than Gaussian draws. Each row belongs to one example
and is not divided by the batch size. For cross-entropy see `fisher.log_p_gradients`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def basis_cotangents(outputs: Tensor) -> list[Tensor]:
    """Return e_1 … e_C for every row of outputs [B, C]: C tensors [B, C] with Σ v vᵀ = I."""
    eye = torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
    return [row.expand_as(outputs) for row in eye]


def rademacher_cotangents(outputs: Tensor, draws: int, generator: torch.Generator) -> list[Tensor]:
    """Return S = `draws` tensors [B, C] of random signs / √S for outputs [B, C], with E Σ v vᵀ = I.

    Args:
        outputs: [B, C].
        draws: number of probes.
        generator: on the CPU. An example's signs do not depend on how examples are batched.
    """
    batch, classes = outputs.shape
    signs = torch.randint(0, 2, (batch, draws, classes), generator=generator) * 2 - 1
    return list((signs.to(outputs) / math.sqrt(draws)).unbind(1))
