"""Points on the straight line between two sets of weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def interpolate_weights(
    start: Mapping[str, Tensor], end: Mapping[str, Tensor], share: float
) -> dict[str, Tensor]:
    """Interpolate weights between two versions: (1 - share) start + share end, by name.

    Tensors of one name have one shape, or that of `end` is a corner of that of `start`: the first
    rows of a head that has grown. The rest of `start` then stays.

    Args:
        start: tensors at share 0.
        end: tensors at share 1.
        share: 0 to 1; both ends are exact.
    """
    weights: dict[str, Tensor] = {}
    for name, tensor in start.items():
        if name not in end:
            weights[name] = tensor
        elif end[name].shape == tensor.shape:
            weights[name] = tensor.lerp(end[name], share)
        else:
            corner = tuple(slice(size) for size in end[name].shape)
            weights[name] = tensor.clone()
            # `lerp` is exact at both ends, where a weighted sum may round.
            weights[name][corner] = torch.lerp(tensor[corner], end[name], share)
    return weights
