"""The gradient of the loss on stored examples, as one flat vector like the gradient of a step.

Vectors follow the parameters in the network's order, each flattened by rows; a parameter without a
gradient counts as zeros. Stored images are not augmented and the network is in eval mode, so the
gradient of a memory is a function of the weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from core.learning.memory.replay import compute_replay_cross_entropy, compute_replay_logits_by_head
from core.learning.memory.reservoir import ReplayItems
from core.learning.methods.method import Method
from core.learning.training.context import TaskTrainingContext

Parameters = Sequence[nn.Parameter]

# Pixels of stored images in one forward pass; a training batch where that is more.
PIXELS = 256 * 32 * 32


def read_gradient_vector(parameters: Parameters) -> Tensor:
    """Concatenate the parameters' `.grad` to one vector [d]."""
    return _flatten_gradients([parameter.grad for parameter in parameters], parameters)


def compute_replay_gradient_vector(
    method: Method, ctx: TaskTrainingContext, items: ReplayItems, parameters: Parameters
) -> Tensor:
    """Compute the gradient of the mean cross-entropy of replay items as one vector [d].

    Each item is scored by the head of its own task, or over all known classes.
    """
    n = items.labels.shape[0]
    size = max(ctx.recipe.batch_size, PIXELS // (items.images.shape[1] * items.images.shape[2]))
    total: Tensor | None = None
    with ctx.use_exact_evaluation_mode():
        for start in range(0, n, size):
            part = slice(start, min(n, start + size))
            with ctx.use_mixed_precision():
                groups = compute_replay_logits_by_head(
                    method, ctx, ctx.make_replay_inputs(items.images[part]), items.tasks[part]
                )
                # Weighted, so that the parts add up to the mean over all items.
                loss = compute_replay_cross_entropy(groups, items.labels[part]) * (
                    (part.stop - start) / n
                )
            # Not `backward`, which would add to the step's own gradients.
            gradient = _flatten_gradients(
                torch.autograd.grad(loss, list(parameters), allow_unused=True), parameters
            )
            # Part by part, so that memory is bounded by a part's activations.
            total = gradient if total is None else total + gradient
    assert total is not None
    return total


def add_vector_to_gradient(vector: Tensor, parameters: Parameters) -> None:
    """Add a flat vector [d] to the parameters' `.grad`."""
    parts: Sequence[Tensor] = vector.split([p.numel() for p in parameters])  # type: ignore[no-untyped-call]
    for parameter, part in zip(parameters, parts, strict=True):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        parameter.grad += part.view(parameter.shape)


def _flatten_gradients(gradients: Sequence[Tensor | None], parameters: Parameters) -> Tensor:
    """Concatenate gradients to one vector [d], with zeros for missing ones."""
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).detach().reshape(-1) for g, p in pairs]
    )
