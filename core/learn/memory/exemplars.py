"""Chosen examples of every class, in an order whose every prefix is as good a choice.

So lists are cut to make room for new classes, and an old list is never chosen again from images that are
gone. Items are raw uint8 images with a label and the task that they came with, in a section of the method's
state.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from core.learn.state import Section


class Exemplars:
    """A view of a state section: images uint8 [N, S, S, C], labels and tasks int64 [N].

    Holds no data itself.
    """

    def __init__(self, section: Section) -> None:
        self._section = section

    @property
    def size(self) -> int:
        """Number of items."""
        labels = self._section.tensors.get("labels")
        return 0 if labels is None else labels.shape[0]

    @property
    def images(self) -> Tensor:
        """Images uint8 [N, S, S, C]."""
        return self._section.tensors["images"]

    @property
    def labels(self) -> Tensor:
        """Labels int64 [N]."""
        return self._section.tensors["labels"]

    def cut(self, count: int) -> None:
        """Keep the first `count` of every class."""
        if self.size:
            labels = self.labels.unique().tolist()  # type: ignore[no-untyped-call]
            self._keep(torch.cat([self._rows(label)[:count] for label in labels]))

    def add(self, lists: Mapping[int, Tensor], task: int, count: int) -> None:
        """Append images of some classes, by label, in their order; then each class has at most `count`.

        If a class has a list already, old and new images alternate, so every prefix holds both. Pass all
        classes at once: every call copies all items.
        """
        images = torch.cat(list(lists.values()))
        sizes = [len(some) for some in lists.values()]
        labels = torch.tensor(list(lists), device=images.device)
        labels = labels.repeat_interleave(torch.tensor(sizes, device=images.device))
        new = {"images": images, "labels": labels, "tasks": torch.full_like(labels, task)}
        held = self._section.tensors
        for name, value in new.items():
            held[name] = torch.cat([held[name], value]) if name in held else value
        kept = [(~torch.isin(self.labels, labels)).nonzero().squeeze(1)]
        for label, added in zip(lists, sizes, strict=True):
            rows = self._rows(label)  # the old ones first
            turns = torch.cat([2 * torch.arange(len(rows) - added), 2 * torch.arange(added) + 1]).argsort()
            kept.append(rows[turns[:count].to(rows.device)])
        self._keep(torch.cat(kept))

    def drop_tasks(self, tasks: set[int]) -> bool:
        """Remove all items that came with these tasks; whether there were any."""
        if not self.size:
            return False
        held = self._section.tensors["tasks"]
        gone = torch.isin(held, torch.tensor(sorted(tasks), device=held.device))
        if gone.any():
            self._keep((~gone).nonzero().squeeze(1))
        return bool(gone.any())

    def _rows(self, label: int) -> Tensor:
        return (self.labels == label).nonzero().squeeze(1)

    def _keep(self, rows: Tensor) -> None:
        for name, tensor in list(self._section.tensors.items()):
            if rows.numel():
                self._section.tensors[name] = tensor[rows]
            else:
                del self._section.tensors[name]
