"""Reservoir: a uniform random sample of a stream, in constant memory.

Reservoir sampling (Vitter 1985, algorithm R): item n + 1 of the stream is retained with probability
M / (n + 1) and then replaces a random slot. Items are raw uint8 images, augmented again at each
replay, with label (row of its head), task number and optionally the logits of the forward pass that
trained on them. Everything, counters and generator included, lives in a section of the method's
state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.learning.data.augment import COLUMNS, derive_seed
from core.learning.data.transfer import copy_tensor_to_device
from core.learning.memory.class_balance import (
    choose_balanced_reservoir_slots,
    draw_class_balanced_rows,
)
from core.learning.state import MethodStateSection
from core.learning.training.context import TaskTrainingContext

SEEN = "seen_by_class"
"""Counter of items offered, by class. Only balanced reservoirs have it."""


@dataclass(frozen=True)
class ReplayItems:
    """Items of a replay buffer: images uint8 [B, S, S, C], labels int64 [B], logits [B, W], widths
    int64 [B].

    `tasks`, int64 [B], are on the CPU, where the heads to use are chosen.
    """

    images: Tensor
    labels: Tensor
    tasks: Tensor
    logits: Tensor | None
    widths: Tensor | None

    @staticmethod
    def read_items_from_section(section: MethodStateSection, rows: Tensor) -> ReplayItems:
        """Read the rows int64 [B] of a replay buffer in a state section, on the CPU."""
        tensors = section.tensors
        tasks = section.get_tensor_on_cpu("tasks").index_select(0, rows)
        rows = copy_tensor_to_device(rows, tensors["labels"].device)
        picked = {
            name: tensor.index_select(0, rows)
            for name, tensor in tensors.items()
            if name != "tasks"
        }
        return ReplayItems(
            picked["images"], picked["labels"], tasks, picked.get("logits"), picked.get("widths")
        )

    def slice_items(self, rows: slice) -> ReplayItems:
        """Return the replay items of a range of rows."""
        logits = None if self.logits is None else self.logits[rows]
        widths = None if self.widths is None else self.widths[rows]
        return ReplayItems(self.images[rows], self.labels[rows], self.tasks[rows], logits, widths)


class ReservoirBuffer:
    """A reservoir replay buffer of `capacity` items, whose data is in a state section.

    Args:
        balanced: items are retained and drawn evenly over classes.
        heads: each task has a head of its own, so that a class is a label of one task.
    """

    def __init__(
        self,
        section: MethodStateSection,
        capacity: int,
        seed: int,
        *,
        balanced: bool = False,
        heads: bool = False,
    ) -> None:
        self._section = section
        self.capacity = capacity
        self._seed = seed
        self._balanced = balanced
        self._heads = heads

    @property
    def generator(self) -> torch.Generator:
        """The reservoir's random generator, created at the first draw: erasing alone creates
        none.
        """
        return self._section.get_random_generator("reservoir", self._seed)

    @property
    def item_count(self) -> int:
        """Number of items in the reservoir."""
        labels = self._section.tensors.get("labels")
        return 0 if labels is None else labels.shape[0]

    @property
    def offered_count(self) -> int:
        """Number of items offered to the reservoir since the stream began."""
        # A buffer without the count has been offered its items at least.
        return max(int(self._section.json.get("seen", 0)), self.item_count)

    def rescale_offers_and_trim_reservoir(self, *, offers: int = 1, logits: bool = False) -> None:
        """Prepare the stored replay buffer, perhaps of another method, for use as a reservoir in a
        task.

        Args:
            offers: number of times each example of the task will be offered. Earlier offers are
                rescaled to as many per example, so that each example has the same chance whatever
                the epochs of its task.
            logits: whether items keep them; False drops stored ones.

        A buffer beyond the capacity shrinks by a uniform choice.
        """
        rescale_offers_and_drop_stale_logits(self._section, offers=offers, logits=logits)
        if self.item_count > self.capacity:
            # Sorted, so that the items stay in their order.
            self._keep_only_buffer_rows(self._choose_random_rows(self.capacity).sort().values)

    def remove_items_of_tasks(self, tasks: set[int]) -> int:
        """Remove all items of these tasks from the reservoir; return their number."""
        if self.item_count == 0:
            return 0
        stored_tasks = self._section.get_tensor_on_cpu("tasks").tolist()
        keep = torch.tensor(
            [i for i, task in enumerate(stored_tasks) if task not in tasks], dtype=torch.int64
        )
        removed = self.item_count - keep.numel()
        if removed:
            self._keep_only_buffer_rows(keep)
        return removed

    def offer_items_to_reservoir(
        self,
        images: Callable[[Tensor], Tensor],
        labels: Tensor,
        task: int,
        logits: Tensor | None = None,
    ) -> None:
        """Offer the items of a batch to the reservoir, in order, which keeps each with falling
        probability.

        Args:
            images: returns the raw uint8 images of given rows, on the CPU, so that only retained
                rows are gathered.
            labels: int64 [B].
            logits: [B, W] or None; all calls of one reservoir must agree on having logits.
        """
        # Drawn for every item, retained or not: the draws of later items then do not depend on the
        # outcome.
        u = torch.rand(labels.shape[0], generator=self.generator, dtype=torch.float64).tolist()
        offered, stored = self.offered_count, self.item_count
        slots = self._choose_slots_of_batch(u, labels, task)
        size = max([stored, *(slot + 1 for slot in slots)])
        self._section.json["seen"] = offered + len(u)
        if slots:
            # Both in one tensor, so that a GPU gets one copy.
            host = torch.tensor([list(slots), list(slots.values())])
            at, rows = copy_tensor_to_device(host, labels.device)
            values = {
                "images": images(host[1]),
                "labels": labels.index_select(0, rows),
                "tasks": torch.full_like(rows, task),
            }
            if logits is not None:
                values["logits"] = logits.detach().float().index_select(0, rows)
                values["widths"] = torch.full_like(rows, logits.shape[1])
            tasks = self._section.get_tensor_on_cpu("tasks") if stored else None
            for name, value in values.items():
                self._section.tensors[name] = self._resize_and_write_buffer_tensor(
                    self._section.tensors.get(name), at, value, size
                )
            if at.device.type != "cpu":
                tasks = self._resize_and_write_buffer_tensor(
                    tasks, host[0], torch.full_like(host[0], task), size
                )
                # Written on both sides: reading it back would make the host wait for the GPU.
                self._section.cache_tensor_cpu_copy("tasks", tasks)

    def draw_items_and_augmentation_numbers(
        self, n: int, columns: int = COLUMNS
    ) -> tuple[ReplayItems, Tensor]:
        """Draw min(n, size) different items from the reservoir, and random numbers to augment
        them.
        """
        rows = self._choose_random_rows(n)
        table = torch.rand(rows.numel(), columns, generator=self.generator, dtype=torch.float64)
        return ReplayItems.read_items_from_section(self._section, rows), table

    def _choose_random_rows(self, n: int) -> Tensor:
        """Choose min(n, size) different random rows, int64."""
        if self._balanced and self.item_count:
            return draw_class_balanced_rows(self._get_item_classes(), n, self.generator)
        return torch.randperm(self.item_count, generator=self.generator)[:n]

    def _choose_slots_of_batch(
        self, draws: Sequence[float], labels: Tensor, task: int
    ) -> dict[int, int]:
        """Choose the reservoir slots that items of a batch take: slot → position in the batch."""
        if not self._balanced:
            self._section.json.pop(SEEN, None)  # counts by class would cover only some batches
            return choose_reservoir_slots(draws, self.offered_count, self.item_count, self.capacity)
        new = labels.cpu()
        classes = (
            _combine_task_and_label_numbers(new, torch.full_like(new, task)) if self._heads else new
        )
        slot_classes = self._get_item_classes().tolist() if self.item_count else []
        offered_by_class = {
            int(kind): count for kind, count in self._section.json.get(SEEN, {}).items()
        }
        slots = choose_balanced_reservoir_slots(
            draws, classes.tolist(), slot_classes, offered_by_class, self.capacity
        )
        # Sorted, so that a resumed run writes the same JSON.
        self._section.json[SEEN] = {
            str(kind): offered_by_class[kind] for kind in sorted(offered_by_class)
        }
        return slots

    def _get_item_classes(self) -> Tensor:
        """Return the class of each item in the reservoir, int64 [size], on the CPU."""
        labels = self._section.get_tensor_on_cpu("labels")
        return (
            _combine_task_and_label_numbers(labels, self._section.get_tensor_on_cpu("tasks"))
            if self._heads
            else labels
        )

    def _keep_only_buffer_rows(self, rows: Tensor) -> None:
        tensors = self._section.tensors
        for name in list(tensors):
            tensors[name] = tensors[name].index_select(0, rows.to(tensors[name].device))

    def _resize_and_write_buffer_tensor(
        self, old: Tensor | None, at: Tensor, value: Tensor, size: int
    ) -> Tensor:
        """Write the rows `at`, int64 [b], of a buffer tensor that is resized to `size` rows."""
        if old is None:
            old = value.new_zeros((0, *value.shape[1:]))
        # the logits are of a head that has grown since
        if old.dim() == 2 and value.shape[1] != old.shape[1]:
            width = max(old.shape[1], value.shape[1])
            old, value = (torch.nn.functional.pad(t, (0, width - t.shape[1])) for t in (old, value))
        old = _grow_row_storage(old, size, self.capacity)
        # In place: the buffer may be large, and a step changes few of its rows.
        return old.index_copy_(0, at, value)


def open_replay_reservoir(
    ctx: TaskTrainingContext, section: MethodStateSection, capacity: int
) -> ReservoirBuffer:
    """Open the reservoir replay buffer of a run, class-balanced if the recipe says so."""
    return ReservoirBuffer(
        section,
        capacity,
        derive_seed(ctx.recipe.seed, 1),
        balanced=ctx.recipe.balanced_batches,
        heads=ctx.scenario == "task",
    )


def _combine_task_and_label_numbers(labels: Tensor, tasks: Tensor) -> Tensor:
    """Combine task and label to one class number per item, int64 [n], since labels repeat over
    tasks.
    """
    # Labels are far below 2³², so no two classes get one number.
    return (tasks << 32) + labels


def choose_reservoir_slots(
    draws: Sequence[float], seen: int, size: int, capacity: int
) -> dict[int, int]:
    """Choose the slots that items of a batch take by reservoir sampling (algorithm R): slot →
    position.

    Args:
        draws: uniform random numbers in [0, 1), one per item.
        seen, size: number of items offered and stored before.
    """
    slots: dict[int, int] = {}
    for row, draw in enumerate(draws):
        if size < capacity:
            slots[size] = row
            size += 1
        else:
            slot = int(
                draw * (seen + row + 1)
            )  # uniform over 0 … n inclusive, n items offered before this one
            if slot < capacity:
                slots[slot] = row  # a later item of the batch replaces an earlier one
    return slots


def rescale_offers_and_drop_stale_logits(
    section: MethodStateSection, *, offers: int, logits: bool
) -> None:
    """Convert a reservoir's counters to `offers` offered items per example, and drop all stored
    logits unless `logits`.
    """
    json = section.json
    if SEEN in json:
        json[SEEN] = {
            kind: count * offers // int(json.get("offers", 1)) for kind, count in json[SEEN].items()
        }
    json["seen"] = int(json.get("seen", 0)) * offers // int(json.get("offers", 1))
    json["offers"] = offers
    if not logits:
        for name in ("logits", "widths"):
            section.tensors.pop(name, None)


def _grow_row_storage(old: Tensor, size: int, capacity: int) -> Tensor:
    """Grow the storage tensor of a replay buffer to `size` rows, keeping its rows.

    Storage doubles, so filling costs linear time, not quadratic.
    """
    if size <= old.shape[0]:
        return old
    room = old.untyped_storage().nbytes() // (old[0].nbytes) if old.shape[0] else 0
    # A view into another tensor's memory must not grow into what lies behind it.
    if room < size or old.storage_offset() != 0:
        rows = min(capacity, max(size, 2 * old.shape[0]))
        storage = old.new_zeros((rows, *old.shape[1:]))
        storage[: old.shape[0]] = old
        return storage[:size]
    return torch.as_strided(old, (size, *old.shape[1:]), old.stride())
