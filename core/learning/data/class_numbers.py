"""Sums and features of tasks under other numbers of the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def renumber_task_tensors(
    tensors: Mapping[str, Tensor], numbers: Sequence[int]
) -> dict[str, Tensor]:
    """Return the tensors of a part with sums or features under other numbers of the classes.

    Args:
        tensors: of the type statistics (`<task>.rows`) or features (`<task>.classes`).
        numbers: new number of each class.
    """
    present, renumbered = torch.tensor(numbers), dict(tensors)
    for name, tensor in tensors.items():
        prefix, _, field = name.rpartition(".")
        if field == "classes":
            renumbered[name] = present[tensor]
        elif field == "rows":
            # A task's sums are in the order of its classes' numbers.
            rows, order = present[tensor].sort()
            renumbered[name] = rows
            for column in (f"{prefix}.cross", f"{prefix}.counts"):
                renumbered[column] = tensors[column][..., order]
    return renumbered
