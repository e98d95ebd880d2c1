"""Online elastic weight consolidation: a quadratic penalty that holds what mattered to earlier tasks.

F ← gamma · F + F_task and penalty (lambda / 2) Σ F (θ - θ*)², θ* the weights after the latest task
(Schwarz et al. 2018, Huszár 2018). The gradient lambda · F (θ - θ*) is added in closed form. New names and
grown rows have no importance until the end of their first task. With SGD the penalty acts with
min(F, 1 / (lr · lambda)), since a larger one makes steps diverge; the stored F is never limited.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from core.learn.augment import epoch_seed
from core.learn.curvature.fisher import CHUNK, EXACT_CLASSES, diagonal_fisher
from core.learn.methods.base import Method
from core.learn.recipe import NotNegative, Strict

if TYPE_CHECKING:
    from core.learn.context import Batch, Context

EXACT_EXAMPLES = 500
SAMPLE_EXAMPLES = 2000
LARGEST = torch.finfo(torch.float32).max


class EwcOnlineHyper(Strict):
    """`lambda` weighs the penalty, `gamma` what is kept of the importance of earlier tasks.

    With SGD the importance F acts up to lr · lambda · F = 1, where one step reaches the anchor.
    `fisher`: "exact" sums over the active classes, "sample" draws one class per example, "auto" takes exact up
    to 20 active classes. `examples` null: 500 for exact, 2000 for sample.
    """

    model_config = ConfigDict(populate_by_name=True)

    lambda_: NotNegative = Field(default=1000.0, alias="lambda")
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    fisher: Literal["auto", "exact", "sample"] = "auto"
    examples: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class EwcOnline(Method):
    """A diagonal Gaussian around the last solution."""

    name = "ewc-online"
    description = (
        "Elastic weight consolidation with one running Fisher and the latest anchor. Keeps no data. With SGD, "
        "importance acts up to lr · lambda · F = 1 (a warning says when); what is stored is not limited."
    )
    source = "Schwarz et al. 2018, arXiv 1805.06370; Huszár 2018, arXiv 1712.03847"
    weak: ClassVar[Mapping[str, str]] = {
        "class": "a weight penalty alone does not separate classes that were never seen together"
    }
    Hyper = EwcOnlineHyper
    neutral = EwcOnlineHyper.model_validate({"lambda": 0.0})
    regularisers = ("penalty",)
    takes = ("curvature",)
    hyper: EwcOnlineHyper

    def begin_task(self, ctx: Context) -> None:
        tensors = self.state["curvature"].tensors
        if not tensors:
            return
        parameters = dict(ctx.network.named_parameters())
        for key in [key for key in tensors if key.startswith("fisher.")]:
            name = key.removeprefix("fisher.")
            if name not in parameters:
                raise ValueError(f"the stored importance names {name}, which the network does not have")
            now = parameters[name].detach().float()
            tensors[key] = _grown(tensors[key], torch.zeros_like(now), name)
            tensors[f"anchor.{name}"] = _grown(tensors[f"anchor.{name}"], now.clone(), name)
        self._warn_of_limits(ctx)

    def penalty_grads(self, ctx: Context) -> None:
        names = self._held(ctx)
        if not names:
            return
        tensors = self.state["curvature"].tensors
        parameters = [ctx.trainable[name] for name in names]
        pull = torch._foreach_sub([p.detach() for p in parameters], [tensors[f"anchor.{n}"] for n in names])
        torch._foreach_mul_(pull, self._importance(ctx, names))
        grads = [p.grad for p in parameters if p.grad is not None]
        torch._foreach_add_(grads, pull, alpha=self.hyper.lambda_)

    def penalty(self, ctx: Context) -> float:
        tensors = self.state["curvature"].tensors
        names = [name for name in ctx.trainable if f"fisher.{name}" in tensors]
        total = 0.0
        for name, importance in zip(names, self._importance(ctx, names), strict=True):
            delta = ctx.trainable[name].detach().float() - tensors[f"anchor.{name}"]
            total += float((importance * delta.square()).sum())
        return self.hyper.lambda_ / 2 * total

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        tensors = self.state["curvature"].tensors
        for name, value in self._fisher(ctx, batches).items():
            held = tensors.get(f"fisher.{name}")
            tensors[f"fisher.{name}"] = value if held is None else held * self.hyper.gamma + value
        for key in [key for key in tensors if key.startswith("fisher.")]:
            name = key.removeprefix("fisher.")
            if name not in ctx.trainable:  # outside S now: no new importance, the old one still decays
                tensors[key] = tensors[key] * self.hyper.gamma
            parameter = ctx.network.get_parameter(name)
            tensors[f"anchor.{name}"] = parameter.detach().float().clone(memory_format=torch.preserve_format)

    def _fisher(self, ctx: Context, batches: Iterable[Batch]) -> dict[str, Tensor]:
        classes = ctx.network.classes_of(ctx.head_task)
        exact = self.hyper.fisher == "exact" or (
            self.hyper.fisher == "auto" and len(classes) <= EXACT_CLASSES
        )
        limit = self.hyper.examples or (EXACT_EXAMPLES if exact else SAMPLE_EXAMPLES)
        seed = epoch_seed(ctx.recipe.seed, ctx.task, 2)
        generator = torch.Generator().manual_seed(seed)

        with ctx.evaluation():
            return diagonal_fisher(
                ctx.network,
                lambda x: self.forward(ctx.network, x, ctx.head_task),
                list(ctx.trainable),
                _chunks(batches, limit),
                exact=exact,
                generator=generator,
            )

    def _held(self, ctx: Context) -> list[str]:
        """Parameters of S with an importance and a gradient in this step."""
        if self.hyper.lambda_ == 0:
            return []
        tensors = self.state["curvature"].tensors
        return [n for n, p in ctx.trainable.items() if p.grad is not None and f"fisher.{n}" in tensors]

    def _limits(self, ctx: Context, names: Iterable[str]) -> list[float]:
        """The importance up to which the penalty acts, for each parameter.

        Where lr · lambda · F exceeds 1, an SGD step overshoots the anchor, and from 2 (without momentum) on
        training diverges. Adam's steps are bounded anyway.
        """
        optimizer = ctx.recipe.optimizer
        if optimizer.name != "sgd":
            return [math.inf for _ in names]
        # lr · lambda may be anything down to zero: a limit that float32 cannot hold is none.
        strengths = [optimizer.rate_of(name) * self.hyper.lambda_ for name in names]
        return [1 / s if s > 1 / LARGEST else math.inf for s in strengths]

    def _warn_of_limits(self, ctx: Context) -> None:
        tensors = self.state["curvature"].tensors
        names = [name for name in ctx.trainable if f"fisher.{name}" in tensors]
        stored, limits = [tensors[f"fisher.{name}"] for name in names], self._limits(ctx, names)
        beyond = sum(int((t > limit).sum()) for t, limit in zip(stored, limits, strict=True))
        if beyond:
            optimizer = ctx.recipe.optimizer
            ctx.warn(
                f"lambda {self.hyper.lambda_:g} is too strong for lr {optimizer.lr:g}: the importance of {beyond} "
                f"of {sum(t.numel() for t in stored)} parameters acts as {min(limits):.3g} at most"
            )

    def _importance(self, ctx: Context, names: list[str]) -> list[Tensor]:
        """The importance that acts: what is stored, limited as `_limits` says."""
        tensors = self.state["curvature"].tensors
        stored = [tensors[f"fisher.{name}"] for name in names]
        return list(torch._foreach_clamp_max(stored, self._limits(ctx, names))) if names else []


def _grown(old: Tensor, fresh: Tensor, name: str) -> Tensor:
    """`old` in the shape of `fresh`, whose values fill rows that old does not have."""
    if old.shape == fresh.shape:
        return old
    if old.dim() != fresh.dim() or old.shape[1:] != fresh.shape[1:] or old.shape[0] > fresh.shape[0]:
        raise ValueError(f"the stored importance of {name} has shape {tuple(old.shape)}")
    fresh[: old.shape[0]] = old
    return fresh


def _chunks(batches: Iterable[Batch], limit: int) -> Iterable[Tensor]:
    left = limit
    for batch in batches:
        for x in batch.x.split(CHUNK):  # type: ignore[no-untyped-call]
            yield x[:left]
            left -= x.shape[0]
            if left <= 0:
                return
