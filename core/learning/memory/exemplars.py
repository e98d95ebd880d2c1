"""Exemplars of every class, in an order in which every prefix is as good a selection.

Lists are cut to make room for new classes, so an old list is never selected again from images that
are gone. Items are raw uint8 images with a label and the task that they came with, in a section of
the method's state.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from core.learning.state import MethodStateSection


class ExemplarBuffer:
    """An exemplar buffer stored in a state section: images uint8 [N, S, S, C], labels and tasks
    int64 [N].

    Holds no data itself.
    """

    def __init__(self, section: MethodStateSection) -> None:
        self._section = section

    @property
    def size(self) -> int:
        """Number of exemplars in the buffer, N."""
        labels = self._section.tensors.get("labels")
        return 0 if labels is None else labels.shape[0]

    @property
    def images(self) -> Tensor:
        """Images of the exemplars, uint8 [N, S, S, C]."""
        return self._section.tensors["images"]

    @property
    def labels(self) -> Tensor:
        """Labels of the exemplars, int64 [N]."""
        return self._section.tensors["labels"]

    def trim_exemplars_per_class(self, count: int) -> None:
        """Keep only the first `count` exemplars of every class."""
        if self.size:
            labels = self.labels.unique().tolist()  # type: ignore[no-untyped-call]
            self._keep_only_buffer_rows(
                torch.cat([self._find_label_rows(label)[:count] for label in labels])
            )

    def append_and_trim_class_exemplars(
        self, lists: Mapping[int, Tensor], task: int, count: int
    ) -> None:
        """Append exemplar images of some classes, then cut each of these classes to at most
        `count`.

        If a class has a list already, old and new images alternate, so every prefix holds both.
        Pass all classes at once: every call copies all items.

        Args:
            lists: label → images uint8 [n, S, S, C], in their order.
            task: the task that they came with.
            count: items per class to keep.
        """
        images = torch.cat(list(lists.values()))
        sizes = [len(images_of_class) for images_of_class in lists.values()]
        labels = torch.tensor(list(lists), device=images.device)
        labels = labels.repeat_interleave(torch.tensor(sizes, device=images.device))
        new = {"images": images, "labels": labels, "tasks": torch.full_like(labels, task)}
        stored = self._section.tensors
        for name, value in new.items():
            stored[name] = torch.cat([stored[name], value]) if name in stored else value
        selected = [(~torch.isin(self.labels, labels)).nonzero().squeeze(1)]
        for label, added in zip(lists, sizes, strict=True):
            rows = self._find_label_rows(label)  # old items first
            # Old items go to even places, new ones to odd places.
            alternating = torch.cat(
                [2 * torch.arange(len(rows) - added), 2 * torch.arange(added) + 1]
            ).argsort()
            selected.append(rows[alternating[:count].to(rows.device)])
        # One copy at the end, however many classes were added.
        self._keep_only_buffer_rows(torch.cat(selected))

    def remove_items_of_tasks(self, tasks: set[int]) -> bool:
        """Remove all exemplars that came with these tasks; return true if there were any."""
        if not self.size:
            return False
        tasks_of_items = self._section.tensors["tasks"]
        # By the task that an item came with: a class may be in several tasks, whose data is deleted
        # apart.
        is_removed = torch.isin(
            tasks_of_items, torch.tensor(sorted(tasks), device=tasks_of_items.device)
        )
        if is_removed.any():
            self._keep_only_buffer_rows((~is_removed).nonzero().squeeze(1))
        return bool(is_removed.any())

    def _find_label_rows(self, label: int) -> Tensor:
        """Return the buffer rows of a label's exemplars, int64."""
        return (self.labels == label).nonzero().squeeze(1)

    def _keep_only_buffer_rows(self, rows: Tensor) -> None:
        """Keep only the exemplars at `rows`; if there are none, remove the tensors."""
        for name, tensor in list(self._section.tensors.items()):
            if rows.numel():
                self._section.tensors[name] = tensor[rows]
            else:
                # An empty section counts as no memory, which a tensor of no rows would not.
                del self._section.tensors[name]
