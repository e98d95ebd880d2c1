"""Batches of a training stage, and the method whose hooks see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from core.learning.data.augment import derive_seed, draw_epoch_random_numbers
from core.learning.data.sampler import (
    draw_class_balanced_row_batches,
    split_shuffled_rows_into_batches,
)
from core.learning.data.transfer import copy_tensor_to_device
from core.learning.methods.method import Method
from core.learning.training.context import TaskTrainingContext, TrainingBatch


class ExampleSource(Protocol):
    """Interface of a source of training batches by row: images, cached features or pooled
    features.
    """

    labels: Tensor

    def make_batch(
        self, index: Tensor, table: Tensor | None, at: Tensor | None = None
    ) -> TrainingBatch:
        """Make the batch of the rows `index` int64 [B], on the CPU; `table` [B, columns] drives
        augmentation.

        at: the same rows on the run's device, or None where there is no copy yet.
        """


@dataclass(frozen=True)
class EpochBatches:
    """The batches of one training epoch, with their row numbers on the CPU and on the device.

    Attributes:
        rows: index batches int64 [B], on the CPU.
        placed: the same on the device.
        table: float64 [N, columns], random numbers for the augmentation of each row; None: not
            augmented.
    """

    source: ExampleSource
    rows: Sequence[Tensor]
    placed: Sequence[Tensor]
    table: Tensor | None

    def __len__(self) -> int:
        return len(self.rows)

    def get_batch(self, number: int) -> TrainingBatch:
        """Return a batch of the epoch by its number, from 0."""
        index, at, table = self.rows[number], self.placed[number], self.table
        if table is not None:
            # RandAugment's table stays on the CPU, others are on the device.
            table = table.index_select(0, index if table.device == index.device else at)
        return self.source.make_batch(index, table, at)


@dataclass(frozen=True)
class TrainingBatchFeed:
    """Plans and makes the shuffled training batches of a stage, epoch by epoch.

    Attributes:
        method: the method whose hooks run in a step.
        rows: int64 [n], rows of the source that are trained on.
        steps: number of batches per epoch.
        size: number of images per batch.
        sampler: shuffled, or stratified.
        augmented: whether the source augments.
    """

    method: Method
    source: ExampleSource
    rows: Tensor
    steps: int
    size: int
    sampler: str
    augmented: bool

    def build_epoch(self, ctx: TaskTrainingContext, number: int) -> EpochBatches:
        """Build the batches of one epoch, which depend on seed, task and epoch number alone."""
        n = len(self.source.labels)
        table = draw_epoch_random_numbers(ctx.recipe.seed, ctx.task, number, n, ctx.augment.columns)
        rows = self._plan_batches(ctx, number, table[:, 0])
        # All batches of the epoch in one copy: a copy in each step would make a GPU wait.
        placed = copy_tensor_to_device(torch.cat(rows), ctx.device).split(
            [part.numel() for part in rows]
        )  # type: ignore[no-untyped-call]
        numbers = (
            ctx.augment.move_random_numbers_to_device(table[:, 1:], ctx.device)
            if self.augmented
            else None
        )
        return EpochBatches(self.source, rows, placed, numbers)

    def _plan_batches(self, ctx: TaskTrainingContext, epoch: int, order: Tensor) -> list[Tensor]:
        """Plan an epoch's batches as row indices; `order`, float [N], ranks the source's rows."""
        if self.sampler == "shuffled":
            return split_shuffled_rows_into_batches(order, self.rows, self.size)
        seed = derive_seed(ctx.recipe.seed, ctx.task)
        return draw_class_balanced_row_batches(
            seed, epoch, self.rows, self.source.labels, self.size, self.steps
        )
