"""Points on the straight line between two sets of weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def on_the_line(start: Mapping[str, Tensor], end: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """(1 - share) start + share end, by name. What `end` lacks stays where `start` has it.

    share: 0 to 1; both ends are exact. Tensors of one name have one shape, or that of `end` is a corner of that
    of `start`: the first rows of a head that has grown. Then the rest of `start` stays.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in start.items():
        if name not in end:
            found[name] = tensor
        elif end[name].shape == tensor.shape:
            found[name] = tensor.lerp(end[name], share)
        else:
            corner = tuple(slice(size) for size in end[name].shape)
            found[name] = tensor.clone()
            found[name][corner] = torch.lerp(tensor[corner], end[name], share)
    return found
