"""Logits of a version on held-out images of all tasks, to which a temperature is fitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

NUMBERS = 1 << 25
"""Logits in memory at once, 128 MiB; with more images only every second, third … is used."""


@dataclass(frozen=True)
class HeldOutLogits:
    """Logits and targets of N held-out images of one task, on the CPU.

    Attributes:
        values: float32 [N, classes of the head].
        targets: int64 [N], rows of the head.
    """

    values: Tensor
    targets: Tensor


def choose_stride_of_images_with_stored_logits(
    sizes: Iterable[tuple[int, int]], max_logits: int = NUMBERS
) -> int:
    """Choose the stride between images whose logits are stored; 1 if all fit into memory.

    Args:
        sizes: images and classes of each task.
        max_logits: maximum number of logits.
    """
    # Rounded up, so that the limit is never exceeded.
    return max(1, -(-sum(images * classes for images, classes in sizes) // max_logits))


def concatenate_task_logits(tasks: Mapping[int, HeldOutLogits]) -> HeldOutLogits:
    """Concatenate the stored logits of all tasks; missing classes of narrower heads get minus
    infinity.
    """
    parts = list(tasks.values())
    width = max((part.values.shape[1] for part in parts), default=0)
    # Minus infinity has a probability of 0, so a narrow head is not made to compete with missing
    # classes.
    values = torch.full((sum(len(part.targets) for part in parts), width), -torch.inf)
    start = 0
    for part in parts:
        rows, columns = part.values.shape
        values[start : start + rows, :columns] = part.values
        start += rows
    targets = [part.targets for part in parts]
    return HeldOutLogits(
        values, torch.cat(targets) if targets else torch.zeros(0, dtype=torch.int64)
    )
