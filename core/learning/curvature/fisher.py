"""The diagonal Fisher information of a classifier, per example, never from batch-mean gradients.

    exact: F_i = E_x Σ_c p_c (∂ log p_c / ∂θ_i)²
    sample: the square for one class c drawn from p
    empirical: for the label, c = y
    predicted: for the likeliest class, c = argmax p (Hsu et al. 2018, arXiv 1810.12488)

van de Ven 2025, arXiv 2502.11756, compares them and explains why a batch's mean gradient is wrong.
The softmax is over the logits of the forward pass; the mean is over examples.

Cotangents are vectors v of the outputs with Σ v vᵀ the Hessian of the loss by the outputs. For half
the squared error that Hessian is the identity I. All basis vectors give it exactly; random signs
give it on average, with less variance than Gaussian draws. Each row belongs to one example and is
not divided by the batch size. For cross-entropy they are `compute_log_probability_gradients`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.learning.curvature.per_sample import Forward, PerExampleGradientSizeSums

Kind = Literal["exact", "sample", "empirical", "predicted"]
EXACT_CLASSES = 20  # largest number of active classes for which the sum is exact


def estimate_diagonal_fisher(
    network: nn.Module,
    forward: Forward,
    names: Iterable[str],
    examples: Iterable[tuple[Tensor, Tensor]],
    *,
    kind: Kind,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Estimate the diagonal Fisher information of parameters, each in its parameter's shape.

    Parameters that the forward pass does not use get zeros.

    Args:
        network: in eval mode.
        forward: x [B, C, S, S] → logits [B, K] of the active classes.
        names: full names of the parameters.
        examples: pairs (x, y) of at most CHUNK examples, y int64 [B] in 0 … K - 1, used by
            "empirical" alone.
        kind: see the module's list.
        generator: on the CPU, for "sample".
    """
    squares = PerExampleGradientSizeSums(network, forward, names, torch.square)
    for x, y in examples:
        gradients = partial(compute_log_probability_gradients, y=y, kind=kind, generator=generator)
        squares.add_examples(x, gradients)
    return squares.compute_mean_gradient_sizes()


def compute_log_probability_gradients(
    logits: Tensor, y: Tensor, kind: Kind, generator: torch.Generator
) -> list[Tensor]:
    """Compute the gradients of log p_c by the logits, e_c - p [B, K], for one class c per row.

    For "exact" the list has one tensor for every class, times √p_c; the other kinds have one in
    all.
    """
    classes = logits.shape[1]
    # No class is active, so there is no probability to differentiate.
    if classes == 0:
        return []
    p = logits.softmax(1)
    if kind == "exact":
        eye = torch.eye(classes, dtype=p.dtype, device=p.device)
        # √p_c, since the squares are to be weighted by p_c.
        return [p[:, c : c + 1].sqrt() * (eye[c] - p) for c in range(classes)]
    if kind == "sample":
        # On the CPU, so that the draws are the same on every device.
        y = torch.multinomial(p.cpu(), 1, generator=generator).squeeze(1).to(p.device)
    elif kind == "predicted":
        y = p.argmax(1)
    # In closed form: the gradient of log-softmax needs no backward pass of its own.
    return [functional.one_hot(y, classes).to(p.dtype) - p]


def make_basis_vector_cotangents(outputs: Tensor) -> list[Tensor]:
    """Make one cotangent per output, e_1 … e_C for every row of outputs [B, C], so that Σ v vᵀ =
    I.
    """
    eye = torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
    return [row.expand_as(outputs) for row in eye]


def draw_rademacher_cotangents(
    outputs: Tensor, draws: int, generator: torch.Generator
) -> list[Tensor]:
    """Draw S = `draws` cotangents [B, C] of random signs / √S for outputs [B, C], with E Σ v vᵀ =
    I.

    Args:
        outputs: [B, C].
        draws: number of probes.
        generator: on the CPU. An example's signs do not depend on how examples are batched.
    """
    batch, classes = outputs.shape
    signs = torch.randint(0, 2, (batch, draws, classes), generator=generator) * 2 - 1
    return list((signs.to(outputs) / math.sqrt(draws)).unbind(1))
