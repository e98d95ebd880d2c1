"""Experience replay: each step also trains on a batch from a reservoir of earlier examples.

The loss is one mean cross-entropy over current and replayed batch together (Chaudhry et al. 2019).
Examples are offered to the reservoir in a task's first epoch only, so each is offered once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from core.learning.memory.replay import (
    compute_replay_cross_entropy,
    compute_replay_logits_by_head,
    draw_replay_items_of_batch_slice,
    make_inputs_of_replay_items,
)
from core.learning.memory.reservoir import ReplayItems
from core.learning.methods.method import CLIP_FROM_RANDOM, TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.methods.replay.with_reservoir import BufferHyper, ReservoirMethod
from core.learning.training.context import TaskTrainingContext, TrainingBatch


class ErHyper(BufferHyper):
    """Hyper-parameters of the method `er`. `buffer`: number of retained examples. `replay_batch`:
    examples per step; null: the batch size; 0: none.
    """

    replay_batch: Annotated[int, Field(ge=0, le=65_536)] | None = None


@register_method
class ExperienceReplay(ReservoirMethod):
    """The method `er` (experience replay): trains on new and replayed examples in one batch and
    loss.
    """

    name = "er"
    description = "Experience replay from a reservoir of raw examples."
    source = (
        "Chaudhry et al. 2019, On Tiny Episodic Memories in Continual Learning, arXiv 1902.10486"
    )
    footprint = TrainingMemoryMultiples(batches=2.0)
    Hyper = ErHyper
    neutral: ClassVar[ErHyper | None] = ErHyper(replay_batch=0)
    replays = True
    no_shards: ClassVar[str] = ""
    from_random: ClassVar[Mapping[str, Any]] = {"optimizer": {"lr": 0.1, "clip": CLIP_FROM_RANDOM}}
    hyper: ErHyper

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute one mean cross-entropy over new and replayed examples; two terms under a masked
        softmax.
        """
        n, reservoir = self._get_replay_size(ctx), self._open_reservoir(ctx)
        if n == 0 or reservoir.item_count == 0:
            return super().compute_loss_terms(ctx, batch)
        ((items, table, drawn_items),) = draw_replay_items_of_batch_slice(ctx, reservoir, n, 1)
        if items.labels.shape[0] == 0:  # there are fewer items than slices
            terms = super().compute_loss_terms(ctx, batch)
        else:
            terms = self._compute_joint_loss(ctx, batch, items, table)
        if ctx.part.of == 1:
            return terms
        # The mean covers new and replayed images, whose numbers differ from slice to slice.
        slice_count = batch.y.shape[0] + items.labels.shape[0]
        share = ctx.part.compute_mean_correction(
            slice_count, ctx.part.images + drawn_items.labels.shape[0]
        )  # one mean over both
        return {name: share * term for name, term in terms.items()}

    def _get_replay_size(self, ctx: TaskTrainingContext) -> int:
        """Return the number of stored examples to replay in each training step."""
        requested = self.hyper.replay_batch
        return ctx.recipe.batch_size if requested is None else requested

    def _compute_joint_loss(
        self, ctx: TaskTrainingContext, batch: TrainingBatch, items: ReplayItems, table: Tensor
    ) -> dict[str, Tensor]:
        """Compute one mean cross-entropy over a batch slice's new images and replay items."""
        x = torch.cat([batch.x, make_inputs_of_replay_items(ctx, items, table)])
        y = torch.cat([batch.y, items.labels])
        current = batch.y.shape[0]
        if ctx.scenario == "task":
            tasks = torch.cat([torch.full((current,), ctx.task), items.tasks])
            return {
                "task": compute_replay_cross_entropy(
                    compute_replay_logits_by_head(self, ctx, x, tasks), y
                )
            }
        logits = self.forward(ctx.network, x, None)
        if not ctx.is_loss_over_task_classes_only:
            return {"task": ctx.loss(logits, y)}
        # Masked: the softmax of new data covers its own classes, that of old examples all. Both
        # form one mean.
        new = ctx.loss(logits[:current], batch.y) * (current / y.shape[0])
        old = torch.nn.functional.cross_entropy(logits[current:].float(), items.labels)
        return {"task": new, "replay": old * (1 - current / y.shape[0])}

    def after_step(self, ctx: TaskTrainingContext, batch: TrainingBatch) -> None:
        """Offer the batch to the replay buffer, in the first epoch only."""
        # Offered once: in every epoch, a task's chance to stay would grow with its epochs.
        if ctx.epoch == 0:
            self._open_reservoir(ctx).offer_items_to_reservoir(batch.raw, batch.y, ctx.task)
