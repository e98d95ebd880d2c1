"""Former classes that each class of a patched version is made of, and rows renumbered by them.

A patch changes classes without learning: a class is dropped, or is made of several. Nothing of the
images is needed, since a head, a memory and an importance have rows or labels by class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

DROPPED = -1
"""New number of a class that is dropped."""


@dataclass(frozen=True)
class ClassMap:
    """Map from former to new class numbers when classes are merged, dropped or reordered.

    Attributes:
        sources: numbers of former classes for each new class, ascending. New classes are in the
            order of their first source, so a head of earlier classes keeps its order.
        former: number of former classes. Those that no new class names are dropped.
    """

    sources: Sequence[Sequence[int]]
    former: int

    @property
    def has_merged_classes(self) -> bool:
        """True if any new class merges several former ones."""
        return any(len(numbers) > 1 for numbers in self.sources)

    @cached_property
    def new_numbers(self) -> Tensor:
        """The new number of each former class, int64 [former]; `DROPPED` for a dropped class."""
        numbers = torch.full((self.former,), DROPPED)
        for new, former in enumerate(self.sources):
            numbers[list(former)] = new
        return numbers

    def renumber_labels(self, labels: Tensor) -> Tensor:
        """Convert former class numbers to new ones, int64, on their device."""
        return self.new_numbers.to(labels.device)[labels]

    def is_only_renumbering(self, classes: Tensor) -> bool:
        """Return True if the map only renumbers the given classes: none is dropped or merged with
        another.

        Args:
            classes: their numbers, int64, each once.
        """
        numbers = self.renumber_labels(classes)
        is_kept = bool((numbers != DROPPED).all())
        return is_kept and len(numbers.unique()) == len(numbers)  # type: ignore[no-untyped-call]

    def average_rows_of_merged_classes(self, rows: Tensor) -> Tensor:
        """Average the rows of merged classes: [former classes, …] to [new classes, …].

        Stored rows may be those of an earlier head, which lacks the newest classes: a new class is
        then the mean of those that are there, and one without any has no row.
        """
        present = self.list_sources_of_each_new_class(len(rows))
        index = [number for numbers in present for number in numbers]
        sizes = [len(numbers) for numbers in present]
        counts = torch.tensor(sizes, dtype=torch.int64, device=rows.device)
        target_rows = torch.arange(len(present), device=rows.device).repeat_interleave(counts)
        sums = rows.new_zeros((len(present), *rows.shape[1:])).index_add_(
            0, target_rows, rows[index]
        )
        # A class of one source keeps its bits.
        return sums / counts.to(sums.dtype).reshape(-1, *[1] * (rows.dim() - 1))

    def list_sources_of_each_new_class(self, former: int) -> list[list[int]]:
        """List, for each new class, its source classes among the first `former`; leave out classes
        without any.
        """
        present = [[number for number in numbers if number < former] for numbers in self.sources]
        return [numbers for numbers in present if numbers]
