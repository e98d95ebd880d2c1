"""Where a stage of training gets its batches, and whose hooks see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from core.learn.augment import epoch_seed
from core.learn.context import Batch, Context
from core.learn.method import Method
from core.learn.sampler import shuffled, stratified


class Source(Protocol):
    """Examples by row: images of the task, their cached features, or the pool of a balanced head."""

    labels: Tensor

    def batch(self, index: Tensor, table: Tensor | None) -> Batch:
        """The rows `index` int64 [B]; `table` [B, columns] drives their augmentation."""


@dataclass(frozen=True)
class Feed:
    """Batches of a stage.

    Attributes:
        method: whose hooks run in a step.
        rows: int64 [n], those of the source that are trained on.
        steps: batches of an epoch.
        sampler: shuffled, or stratified.
        augmented: whether the source augments.
    """

    method: Method
    source: Source
    rows: Tensor
    steps: int
    sampler: str
    augmented: bool

    def batches(self, ctx: Context, epoch: int, order: Tensor) -> list[Tensor]:
        """Index batches of an epoch. order: float [N], which ranks the source's rows."""
        if self.sampler == "shuffled":
            return shuffled(order, self.rows, ctx.recipe.batch_size)
        seed = epoch_seed(ctx.recipe.seed, ctx.task)
        return stratified(seed, epoch, self.rows, self.source.labels, ctx.recipe.batch_size, self.steps)
