"""Synaptic intelligence: weights matter by how much their movement lowered the loss, measured while training.

Each step: omega -= g · Δθ, g the gradient of the task's loss alone (before penalties, projection and clipping),
Δθ all that moved the weight (momentum, Adam, clipping, OLOR). End of a task: Omega ← relu(Omega + omega / (d² + xi)),
d the whole distance moved; omega is forgotten. Penalty c Σ Omega (θ - θ*)², without 1/2 (Zenke et al. 2017).
Three passes over the weights per step, and no pass over the data at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from core.learn.context import Batch, Context
from core.learn.method import Footprint
from core.learn.methods.quadratic import Quadratic, weights_now
from core.learn.recipe import Strength, Strict


class SiHyper(Strict):
    """`c` weighs the penalty c Σ Omega (θ - θ*)²; `xi` keeps Omega finite for weights that hardly moved."""

    c: Strength = 0.1
    xi: Annotated[float, Field(ge=1e-12)] = 0.1


class Si(Quadratic):
    """The path integral of the task's gradient."""

    name = "si"
    footprint = Footprint(copies=12.0)
    description = (
        "Synaptic intelligence: holds the weights whose movement lowered the loss of earlier tasks, measured "
        "while training. Keeps no data. With SGD, weights that are held too steeply for lr take smaller steps."
    )
    source = "Zenke et al. 2017, Continual Learning Through Synaptic Intelligence, arXiv 1703.04200"
    weak: ClassVar[Mapping[str, str]] = {
        "class": "a weight penalty alone does not separate classes that were never seen together"
    }
    Hyper = SiHyper
    neutral = SiHyper(c=0.0)
    section = "own"
    importance = "importance"
    hyper: SiHyper

    @property
    def stiffness(self) -> float:
        return 2 * self.hyper.c

    def begin_task(self, ctx: Context) -> None:
        super().begin_task(ctx)
        for name in ctx.trainable:
            now = weights_now(ctx, name)
            self.tensors.setdefault(self.key(name), torch.zeros_like(now))
            self.tensors.setdefault(f"anchor.{name}", now)  # also where the task's path starts
            self.tensors[f"path.{name}"] = torch.zeros_like(now)

    def penalty_grads(self, ctx: Context) -> None:
        moving = {name: p for name, p in ctx.trainable.items() if p.grad is not None}
        ctx.scratch["moving"] = list(moving)
        ctx.scratch["gradients"] = [p.grad.clone() for p in moving.values() if p.grad is not None]
        ctx.scratch["before"] = [p.detach().clone() for p in moving.values()]
        super().penalty_grads(ctx)

    def after_step(self, ctx: Context, batch: Batch) -> None:
        names = ctx.scratch["moving"]
        if names:
            back = ctx.scratch["before"]  # becomes minus what the step moved
            torch._foreach_sub_(back, [ctx.trainable[name].detach() for name in names])
            paths = [self.tensors[f"path.{name}"] for name in names]
            torch._foreach_addcmul_(paths, ctx.scratch["gradients"], back)

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        tensors = self.tensors
        for name in ctx.trainable:
            now, path = weights_now(ctx, name), tensors.pop(f"path.{name}")
            moved = (now - tensors[f"anchor.{name}"]).square_()
            tensors[self.key(name)] = (tensors[self.key(name)] + path / (moved + self.hyper.xi)).relu()
            tensors[f"anchor.{name}"] = now
