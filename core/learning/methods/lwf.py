"""Learning without forgetting: the old network's outputs for the new images are a second target.

L = CE + lambda_o · mean over x of -Σ_i p'_i log q'_i, with p' = softmax(z_old / T) of the network
at the start of the task and q' = softmax(z / T), Li and Hoiem 2016; no factor T². With a head per
task there is one such term per old head, else one over the outputs that existed before. Old data is
neither stored nor used.

With `weight` "by-classes" the two losses are weighted by the classes that they cover, L = n/(o + n)
· CE + o/(o + n) · lambda_o · (…), o old classes and n classes of the task. The weights are 1/t and
1 - 1/t where every task brings as many new classes, as in van de Ven and Tolias 2019 (arXiv
1904.07734). As there, q' is then taken over all classes, and p' is 0 for new ones. They also
multiply by T², which `lambda_o` can do here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learning.methods.method import Method, TrainingMemoryMultiples, TrainingStage
from core.learning.methods.registration import register_method
from core.learning.methods.teacher import count_parameter_rows_before_task, get_teacher_network
from core.learning.recipe import NotNegative, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch

WARM_UP = "warm-up"


class LwfHyper(StrictRecipeModel):
    """Hyper-parameters of the method `lwf` (learning without forgetting).

    `lambda_o` weighs the distillation. `temperature` divides the logits of both networks. `weight`:
    "by-classes": the new loss and the distillation weigh by the task's classes and the old ones,
    and the distillation covers all classes; "constant": 1 and 1. No effect with a head per task.
    `warmup_epochs`: epochs before the recipe's, with their own optimizer, in which only new rows of
    the head learn; the whole head where a task brings no new class.
    """

    lambda_o: NotNegative = 1.0
    temperature: Annotated[float, Field(ge=1e-3)] = 2.0
    weight: Literal["constant", "by-classes"] = "constant"
    warmup_epochs: Annotated[int, Field(ge=0, le=10_000)] = 0


@register_method
class LearningWithoutForgetting(Method):
    """The method `lwf`, which distils the previous version's outputs on the new images."""

    name = "lwf"
    footprint = TrainingMemoryMultiples(copies=8.0, batches=1.5)
    description = (
        "Learning without forgetting: distils the previous version on the new images. "
        "Keeps no data."
    )
    source = "Li and Hoiem 2016, Learning without Forgetting, arXiv 1606.09282"
    scenario_warnings: ClassVar[Mapping[str, str]] = {
        "class": "new images say little about old classes, so the new ones crowd them out"
    }
    scenario_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "class": {"weight": "by-classes"}
    }
    Hyper = LwfHyper
    neutral = LwfHyper(lambda_o=0.0)
    regularisers = ("distillation",)
    no_shards = ""
    hyper: LwfHyper

    def plan_training_stages(self, ctx: TaskTrainingContext) -> list[TrainingStage]:
        """Plan the training stages: a warm-up of new head rows if requested, then the recipe's
        epochs.
        """
        warm_up = (
            [TrainingStage(WARM_UP, self.hyper.warmup_epochs, depth=1)]
            if self.hyper.warmup_epochs
            else []
        )
        return [*warm_up, TrainingStage()]

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute the cross-entropy, and after the first task the weighted distillation loss."""
        if ctx.first or self.hyper.lambda_o == 0:
            return super().compute_loss_terms(ctx, batch)
        network, old = ctx.network, get_teacher_network(ctx)
        features = network.features(batch.x)
        logits = network.logits(features, batch.task)
        with torch.no_grad():
            # Once for all old heads.
            old_features = old.features(batch.x)
        distances: list[Tensor] = []
        if ctx.scenario == "task":
            for task in network.head_classes:
                if task != ctx.task:
                    target = old.logits(old_features, task)
                    distances.append(
                        self._compute_distillation_loss(network.logits(features, task), target)
                    )
        else:
            rows = count_parameter_rows_before_task(ctx, "head.weight")
            target = old.logits(old_features)
            if self.hyper.weight == "by-classes":
                return self._weight_losses_by_classes(ctx, batch, logits, target, rows)
            distances.append(self._compute_distillation_loss(logits[:, :rows], target[:, :rows]))
        return {
            "task": ctx.loss(logits, batch.y),
            "distillation": self.hyper.lambda_o * torch.stack(distances).sum(),
        }

    def _weight_losses_by_classes(
        self,
        ctx: TaskTrainingContext,
        batch: TrainingBatch,
        logits: Tensor,
        target: Tensor,
        rows: int,
    ) -> dict[str, Tensor]:
        """Weigh cross-entropy and distillation loss by their shares of the classes.

        The teacher gives classes from row `rows` on a probability of zero.
        """
        share = len(ctx.classes) / (rows + len(ctx.classes))
        target = target.clone()
        # Minus infinity gives new classes a probability of zero.
        target[:, rows:] = -math.inf
        return {
            "task": share * ctx.loss(logits, batch.y),
            "distillation": (1 - share)
            * self.hyper.lambda_o
            * self._compute_distillation_loss(logits, target),
        }

    def after_step(self, ctx: TaskTrainingContext, batch: TrainingBatch) -> None:
        """Restore the head's old rows after each step of the warm-up, which trains new rows
        alone.
        """
        if ctx.stage != WARM_UP or ctx.first:
            return
        old = {
            name: (count_parameter_rows_before_task(ctx, name), parameter)
            for name, parameter in ctx.trainable.items()
        }
        if all(rows == parameter.shape[0] for rows, parameter in old.values()):
            return  # no new rows: the whole head warms up
        for name, (rows, parameter) in old.items():
            # Restored after the step, since momentum and decay move rows without a gradient too.
            parameter[:rows].copy_(get_teacher_network(ctx).get_parameter(name)[:rows])

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Drop the teacher network at the end of the task."""
        # The teacher takes as much memory as the network, and measuring comes next.
        ctx.cache.pop("teacher", None)

    def _compute_distillation_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return compute_distillation_loss(logits.float(), target.float(), self.hyper.temperature)


def compute_distillation_loss(logits: Tensor, target: Tensor, temperature: float) -> Tensor:
    """Compute the distillation loss: mean cross-entropy between temperature-softened outputs.

    Its gradient is (q' - p') / (T · B). No gradient flows into `target`.

    Args:
        logits: [B, C].
        target: [B, C] over the same classes.
        temperature: T.
    """
    targets = (target / temperature).softmax(1)
    return functional.cross_entropy(logits / temperature, targets)
