"""Choices that give each class its share of a replay buffer, whatever the stream contains.

A draw has equally many items of each class, as far as there are enough. A full buffer gives up an
item of its largest class (Chrysakis & Moens 2020, Online Continual Learning from Imbalanced Data,
ICML).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def draw_class_balanced_rows(classes: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw min(n, N) different rows, int64, with as equal numbers of each class as possible.

    Args:
        classes: int64 [N], on the CPU.
    """
    order = torch.randperm(classes.numel(), generator=generator)
    earlier_counts = _count_earlier_items_of_class(classes[order])
    chance = torch.rand(classes.numel(), generator=generator, dtype=torch.float64)
    # The count rises class by class, so the draw goes round the classes; the fraction orders each
    # round by chance.
    return order[(earlier_counts + chance).argsort(stable=True)[:n]]


def _count_earlier_items_of_class(classes: Tensor) -> Tensor:
    """Return for each item the number of earlier items of its class, int64 [N]."""
    by_class = classes.argsort(stable=True)
    _, sizes = classes[by_class].unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    counts = torch.empty_like(classes)
    counts[by_class] = torch.arange(classes.numel()) - starts
    return counts


def choose_balanced_reservoir_slots(
    draws: Sequence[float],
    classes: Sequence[int],
    stored_classes: Sequence[int],
    offered_counts: dict[int, int],
    capacity: int,
) -> dict[int, int]:
    """Choose the class-balanced reservoir's slots for the items of a batch: slot → position in the
    batch.

    A full buffer replaces an item of its largest class by one of a smaller class; of the largest
    class itself it stays a uniform sample (algorithm R).

    Args:
        draws: uniform random numbers in [0, 1), one per item.
        classes: the class of each item.
        stored_classes: the class of the item in each slot.
        offered_counts: class → number of items offered before; updated.
    """
    slots: dict[int, int] = {}
    places: dict[int, list[int]] = {}
    for slot, kind in enumerate(stored_classes):
        places.setdefault(kind, []).append(slot)
    size = len(stored_classes)
    for row, (draw, kind) in enumerate(zip(draws, classes, strict=True)):
        slots_of_class = places.setdefault(kind, [])
        # A run without `balanced_batches` drops the counts by class: at least the stored items were
        # offered.
        offered_counts[kind] = max(offered_counts.get(kind, 0), len(slots_of_class)) + 1
        if size < capacity:
            slot, size = size, size + 1
            slots_of_class.append(slot)
        else:
            # Of equal classes the one with the lower number: the choice is a function of the buffer
            # alone.
            largest = max(places, key=lambda each: (len(places[each]), -each))
            if len(slots_of_class) == len(places[largest]):
                index_in_class = int(draw * offered_counts[kind])
                if index_in_class >= len(slots_of_class):
                    continue
                slot = slots_of_class[index_in_class]
            else:
                slot = places[largest].pop(int(draw * len(places[largest])))
                slots_of_class.append(slot)
        slots[slot] = row  # a later item of the batch replaces an earlier one
    return slots
