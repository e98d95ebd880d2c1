"""Learning without forgetting: the old network's outputs for the new images are a second target.

L = CE + lambda_o · mean over x of -Σ_i p'_i log q'_i, with p' = softmax(z_old / T) of the network as it was
when the task began and q' = softmax(z / T), Li and Hoiem 2016; no factor T². With a head per task there is
one such term per old head, else one over the outputs that existed before. Old data is neither kept nor seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learn.context import Batch, Context
from core.learn.method import Footprint, Method, Stage
from core.learn.recipe import NotNegative, Strict
from core.learn.teacher import num_old_rows, teacher

WARM_UP = "warm-up"


class LwfHyper(Strict):
    """`lambda_o` weighs the distillation. `temperature` divides the logits of both networks.

    `warmup_epochs`: epochs before the recipe's, with their own optimizer, in which only new rows of the head
    learn; the whole head where a task brings no new class.
    """

    lambda_o: NotNegative = 1.0
    temperature: Annotated[float, Field(ge=1e-3)] = 2.0
    warmup_epochs: Annotated[int, Field(ge=0, le=10_000)] = 0


class Lwf(Method):
    """Distils the previous version on the new images."""

    name = "lwf"
    footprint = Footprint(copies=8.0, batches=1.5)
    description = (
        "Learning without forgetting: distils the previous version on the new images. Keeps no data."
    )
    source = "Li and Hoiem 2016, Learning without Forgetting, arXiv 1606.09282"
    scenario_warnings: ClassVar[Mapping[str, str]] = {
        "class": "new images say little about old classes, so the new ones crowd them out"
    }
    Hyper = LwfHyper
    neutral = LwfHyper(lambda_o=0.0)
    regularisers = ("distillation",)
    hyper: LwfHyper

    def stages(self, ctx: Context) -> list[Stage]:
        """The warm-up, if asked for, then the recipe's epochs."""
        warm_up = [Stage(WARM_UP, self.hyper.warmup_epochs, depth=1)] if self.hyper.warmup_epochs else []
        return [*warm_up, Stage()]

    def loss_terms(self, ctx: Context, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy, and after the first task the weighted distillation."""
        if ctx.first or self.hyper.lambda_o == 0:
            return super().loss_terms(ctx, batch)
        network, old = ctx.network, teacher(ctx)
        features = network.features(batch.x)
        logits = network.logits(features, batch.task)
        with torch.no_grad():
            old_features = old.features(batch.x)
        distances: list[Tensor] = []
        if ctx.scenario == "task":
            for task in network.head_classes:
                if task != ctx.task:
                    target = old.logits(old_features, task)
                    distances.append(self._distance(network.logits(features, task), target))
        else:
            rows = num_old_rows(ctx, "head.weight")
            target = old.logits(old_features)
            distances.append(self._distance(logits[:, :rows], target[:, :rows]))
        return {
            "task": ctx.cross_entropy(logits, batch.y),
            "distillation": self.hyper.lambda_o * torch.stack(distances).sum(),
        }

    def after_step(self, ctx: Context, batch: Batch) -> None:
        """In the warm-up, put old rows of the head back."""
        if ctx.stage != WARM_UP or ctx.first:
            return
        old = {name: (num_old_rows(ctx, name), parameter) for name, parameter in ctx.trainable.items()}
        if all(rows == parameter.shape[0] for rows, parameter in old.values()):
            return  # nothing is new: the whole head warms up
        for name, (rows, parameter) in old.items():
            parameter[:rows].copy_(teacher(ctx).get_parameter(name)[:rows])

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        """Drop the teacher."""
        ctx.cache.pop("teacher", None)

    def _distance(self, logits: Tensor, target: Tensor) -> Tensor:
        return distillation(logits.float(), target.float(), self.hyper.temperature)


def distillation(logits: Tensor, target: Tensor, temperature: float) -> Tensor:
    """Mean over the batch of the cross-entropy between softened outputs; gradient (q' - p') / (T · B).

    logits, target: [B, C] over the same classes. No gradient flows into `target`.
    """
    targets = (target / temperature).softmax(1)
    return functional.cross_entropy(logits / temperature, targets)
