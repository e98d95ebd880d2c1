"""Synaptic intelligence: the importance of a weight is the loss reduction along its training path.

Each step: omega -= g · Δθ, g the gradient of the task's loss alone (before penalties, projection
and clipping), Δθ the whole movement of the weight (momentum, Adam, clipping, OLOR). End of a task:
Omega ← relu(Omega + omega / (d² + xi)), d the whole displacement; omega is dropped. Penalty c Σ
Omega (θ - θ*)², without 1/2 (Zenke et al. 2017). A step costs three passes over the weights; the
end of a task needs no pass over the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from core.learning.methods.method import TrainingMemoryMultiples
from core.learning.methods.penalties.quadratic import QuadraticPenaltyMethod, clone_parameter_values
from core.learning.methods.registration import register_method
from core.learning.recipe import Strength, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch


class SiHyper(StrictRecipeModel):
    """Hyper-parameters of the method `si` (synaptic intelligence).

    `c` weighs the penalty c Σ Omega (θ - θ*)². `xi` bounds Omega of weights that hardly moved. On
    Split-MNIST a weight moves by about 0.01 in a task, d² 1e-4: a `xi` of 0.1 outweighs that, and
    the penalty has no effect.
    """

    c: Strength = 0.1
    xi: Annotated[float, Field(ge=1e-12)] = 1e-3


@register_method
class SynapticIntelligence(QuadraticPenaltyMethod):
    """The method `si` (synaptic intelligence): importance by the path integral of the gradient."""

    name = "si"
    footprint = TrainingMemoryMultiples(copies=12.0)
    description = (
        "Synaptic intelligence: holds the weights whose movement lowered the loss of earlier "
        "tasks, measured while training. Keeps no data. With SGD, weights that are held too "
        "steeply for lr take smaller steps."
    )
    source = "Zenke et al. 2017, Continual Learning Through Synaptic Intelligence, arXiv 1703.04200"
    scenario_warnings: ClassVar[Mapping[str, str]] = {
        "class": "a weight penalty alone does not separate classes that were never seen together"
    }
    Hyper = SiHyper
    neutral = SiHyper(c=0.0)
    no_merge = (
        "its importance is measured along the path of training, which merged weights have left"
    )
    needs_classes = ""
    section = "own"
    importance = "importance"
    hyper: SiHyper

    @property
    def penalty_strength(self) -> float:
        """Strength 2 c of the quadratic penalty, since SI has no factor 1/2."""
        return 2 * self.hyper.c

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Begin a task; start the path integral of every trainable parameter at 0."""
        super().begin_task(ctx)
        for name in ctx.trainable:
            now = clone_parameter_values(ctx, name)
            self.stored_tensors.setdefault(self.get_importance_key(name), torch.zeros_like(now))
            self.stored_tensors.setdefault(
                f"anchor.{name}", now
            )  # also the start of the task's path
            self.stored_tensors[f"path.{name}"] = torch.zeros_like(now)

    def add_penalty_gradients(self, ctx: TaskTrainingContext) -> None:
        """Record gradients and weights for the path integral, then add the penalty's gradient."""
        moving = {name: p for name, p in ctx.trainable.items() if p.grad is not None}
        ctx.scratch["moving"] = list(moving)
        # Before penalties, projection and clipping change them: the path integral is of the task's
        # loss.
        ctx.scratch["gradients"] = [p.grad.clone() for p in moving.values() if p.grad is not None]
        # The whole movement counts, with momentum, clipping and OLOR, so it is measured and not
        # computed.
        ctx.scratch["before"] = [p.detach().clone() for p in moving.values()]
        super().add_penalty_gradients(ctx)

    def after_step(self, ctx: TaskTrainingContext, batch: TrainingBatch) -> None:
        """Add the step's contribution -g · Δθ to the path integral of each parameter."""
        names = ctx.scratch["moving"]
        if names:
            back = ctx.scratch["before"]  # becomes minus the step's movement
            torch._foreach_sub_(back, [ctx.trainable[name].detach() for name in names])
            paths = [self.stored_tensors[f"path.{name}"] for name in names]
            torch._foreach_addcmul_(paths, ctx.scratch["gradients"], back)

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Convert path integrals to importance at the task's end, and move the anchor to the
        present weights.
        """
        tensors = self.stored_tensors
        for name in ctx.trainable:
            now, path = clone_parameter_values(ctx, name), tensors.pop(f"path.{name}")
            # The displacement since the anchor: the path of this task began there.
            moved = (now - tensors[f"anchor.{name}"]).square_()
            tensors[self.get_importance_key(name)] = (
                # ξ bounds the quotient of weights that hardly moved; `relu` drops those whose
                # movement raised the loss.
                tensors[self.get_importance_key(name)] + path / (moved + self.hyper.xi)
            ).relu()
            tensors[f"anchor.{name}"] = now
