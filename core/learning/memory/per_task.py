"""A replay buffer with a fixed share per task: a limited, uniform sample of each task's examples.

Its layout is the reservoir's (images, labels, tasks, counters), so a method with one kind of replay
buffer can take over the other's. Examples come shuffled: the first ones of a task are a uniform
sample of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from core.learning.memory.reservoir import ReplayItems, rescale_offers_and_drop_stale_logits
from core.learning.state import MethodStateSection
from core.learning.training.context import TrainingBatch


class PerTaskReplayBuffer:
    """A replay buffer of `share` examples per task, stored in a state section.

    Holds no data itself.
    """

    def __init__(self, section: MethodStateSection, share: int) -> None:
        self._section = section
        self.share = share

    @property
    def tasks_with_stored_examples(self) -> list[int]:
        """Tasks with at least one example in the replay buffer, the oldest first."""
        if "tasks" not in self._section.tensors:
            return []
        return sorted(set(self._section.get_tensor_on_cpu("tasks").tolist()))

    def trim_each_task_to_share(self) -> None:
        """Cut the stored replay buffer, perhaps another method's, to `share` examples per task."""
        # Logits are of another method, and nothing would keep them up to date.
        rescale_offers_and_drop_stale_logits(self._section, offers=1, logits=False)
        stored = self._section.tensors
        if not stored:
            return
        remaining_slots = dict.fromkeys(self.tasks_with_stored_examples, self.share)
        keep: list[bool] = []
        for task in stored["tasks"].tolist():
            keep.append(remaining_slots[task] > 0)
            remaining_slots[task] -= 1
        self._keep_masked_examples(
            torch.tensor(keep, dtype=torch.bool, device=stored["tasks"].device)
        )

    def store_task_examples(self, batches: Iterable[TrainingBatch], task: int) -> None:
        """Store a random sample of at most `share` of a task's examples, given its shuffled
        batches.
        """
        stored, room = self._section.tensors, self.share
        for batch in batches:
            # Counted although the buffer does not need it: another method may take over the buffer
            # as a reservoir.
            self._section.json["seen"] += batch.y.shape[0]
            # The batches come shuffled, so the first rows are a uniform sample.
            labels = batch.y[:room]
            room -= labels.shape[0]
            if labels.shape[0] == 0:
                continue
            new = {
                "images": batch.raw(torch.arange(labels.shape[0])),
                "labels": labels,
                "tasks": torch.full_like(labels, task),
            }
            for name, value in new.items():
                stored[name] = torch.cat([stored[name], value]) if name in stored else value

    def get_task_examples(self, tasks: Iterable[int]) -> ReplayItems:
        """Return all replay examples of these tasks."""
        is_selected = torch.isin(
            self._section.get_tensor_on_cpu("tasks"), torch.tensor(list(tasks))
        )
        return ReplayItems.read_items_from_section(self._section, is_selected.nonzero().squeeze(1))

    def remove_items_of_tasks(self, tasks: set[int]) -> None:
        """Remove all replay examples of these tasks from the buffer."""
        tasks_of_items = self._section.tensors.get("tasks")
        if tasks_of_items is not None:
            self._keep_masked_examples(
                ~torch.isin(tasks_of_items, torch.tensor(list(tasks), device=tasks_of_items.device))
            )

    def _keep_masked_examples(self, mask: Tensor) -> None:
        for name, tensor in self._section.tensors.items():
            self._section.tensors[name] = tensor[mask]
