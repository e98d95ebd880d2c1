"""Dark experience replay++: keep examples with the logits they had, and match both logits and labels.

L = CE(new) + alpha · MSE(z(buffer), z_stored) + beta · CE(second draw), Buzzega et al. 2020.
Stored logits are those of the forward pass that trained on the example, and examples are offered to the
reservoir in every epoch, so the memory holds points of the whole trajectory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import Tensor

from core.learn.augment import epoch_seed
from core.learn.memory.replay import item_logits, items_cross_entropy, items_distillation, replay_inputs
from core.learn.memory.reservoir import Items, Reservoir
from core.learn.methods.base import Method
from core.learn.recipe import NotNegative, Strict

if TYPE_CHECKING:
    from core.learn.context import Batch, Context


class DerPlusPlusHyper(Strict):
    """`alpha` weighs stored logits, `beta` stored labels; 0 skips the draw. `replay_batch` null: batch size."""

    buffer: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    alpha: NotNegative = 0.1
    beta: NotNegative = 0.5
    replay_batch: Annotated[int, Field(ge=1, le=65_536)] | None = None


class DerPlusPlus(Method):
    """Replay of logits and of labels, from two independent draws."""

    name = "der++"
    description = "Dark experience replay++: replays stored examples with their old logits and their labels."
    source = "Buzzega et al. 2020, arXiv 2004.07211"
    Hyper = DerPlusPlusHyper
    neutral = DerPlusPlusHyper(alpha=0.0, beta=0.0)
    regularisers = ("logits", "labels")
    takes = ("buffer",)
    hyper: DerPlusPlusHyper

    def begin_task(self, ctx: Context) -> None:
        section = self.state["buffer"]
        if section.tensors and "logits" not in section.tensors:
            # Taken over from a method that keeps no logits: no unit counts until the item is replaced.
            n = section.tensors["labels"].shape[0]
            section.tensors["logits"] = torch.zeros(n, 1, device=ctx.device)
            section.tensors["widths"] = torch.zeros(n, dtype=torch.int64, device=ctx.device)
        self._reservoir(ctx).fit()

    def loss_terms(self, ctx: Context, batch: Batch) -> dict[str, Tensor]:
        logits = self.forward(ctx.network, batch.x, batch.task)
        ctx.scratch["logits"] = logits.detach()
        terms = {"task": ctx.cross_entropy(logits, batch.y)}
        reservoir = self._reservoir(ctx)
        if reservoir.size == 0:
            return terms
        n = self.hyper.replay_batch or ctx.recipe.batch_size
        draws: list[tuple[Items, Tensor]] = []
        if self.hyper.alpha > 0:
            draws.append(reservoir.draw(n))
        if self.hyper.beta > 0:
            draws.append(reservoir.draw(n))
        if not draws:
            return terms
        with ctx.extra_forward():
            for position, (items, table) in enumerate(draws):
                groups = item_logits(self, ctx, replay_inputs(ctx, items, table), items.tasks)
                if position == 0 and self.hyper.alpha > 0:
                    assert items.logits is not None and items.widths is not None
                    distance = items_distillation(groups, items.logits, items.widths)
                    terms["logits"] = self.hyper.alpha * distance
                else:
                    terms["labels"] = self.hyper.beta * items_cross_entropy(groups, items.labels)
        return terms

    def after_step(self, ctx: Context, batch: Batch) -> None:
        self._reservoir(ctx).add(batch.raw, batch.y, ctx.task, ctx.scratch["logits"])

    def erase(self, tasks: set[int]) -> None:
        if self.state["buffer"]:
            Reservoir(self.state["buffer"], self.hyper.buffer, 0).drop_tasks(tasks)

    def _reservoir(self, ctx: Context) -> Reservoir:
        return Reservoir(self.state["buffer"], self.hyper.buffer, epoch_seed(ctx.recipe.seed, 1))
