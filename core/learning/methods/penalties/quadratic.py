"""A quadratic penalty on the displacement of each weight, by its importance to earlier tasks.

Penalty (penalty_strength / 2) Σ importance (θ - anchor)²; its gradient is added in closed form. New
parameters and rows have importance 0 until the end of their first task. Methods differ in how they
measure importance.

With SGD a weight takes smaller steps where its penalty is steeper than 1 / r. r = lr / (1 -
momentum) is the rate at which a steady gradient moves the weight. There its whole gradient, the
loss's included, is scaled by 1 / (r · penalty_strength · importance), as if its rate were lowered
to that. Without this, weights would swing through their anchors into steep parts of the loss and
diverge, although each step alone is short enough. The stored values and the weights at which loss
and penalty balance stay the same. Adam bounds its steps itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor

from core.learning.curvature.per_sample import CHUNK
from core.learning.methods.method import Method
from core.learning.training.context import TaskTrainingContext, TrainingBatch

LARGEST = torch.finfo(torch.float32).max


class QuadraticPenaltyMethod(Method):
    """Base class of methods with a quadratic penalty weighted by parameter importance.

    Stores `<importance>.<name>` and `anchor.<name>`, each of its parameter's shape, in one section.
    Subclasses measure importance at the end of a task and define `penalty_strength`.
    """

    section: ClassVar[str]
    importance: ClassVar[str]
    regularisers = ("penalty",)
    no_shards = ""

    @property
    def penalty_strength(self) -> float:
        """Strength of the quadratic penalty: its second derivative where importance is 1."""
        raise NotImplementedError

    @property
    def stored_tensors(self) -> dict[str, Tensor]:
        """The method's stored tensors (importance, anchors) by key."""
        return self.state[self.section].tensors

    def get_importance_key(self, name: str) -> str:
        """Return the storage key of a parameter's importance."""
        return f"{self.importance}.{name}"

    def list_parameters_with_importance(self) -> list[str]:
        """List the names of the parameters with a stored importance."""
        prefix = self.get_importance_key("")
        return [key.removeprefix(prefix) for key in self.stored_tensors if key.startswith(prefix)]

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Pad the stored importance and anchors to a network that grew, when a task begins.

        Raises ValueError for a parameter that the network lacks.
        """
        parameters = dict(ctx.network.named_parameters())
        for name in self.list_parameters_with_importance():
            if name not in parameters:
                raise ValueError(
                    f"the stored importance names {name}, which the network does not have"
                )
            now = parameters[name].detach()
            for key, fresh in (
                (self.get_importance_key(name), torch.zeros_like(now)),
                (f"anchor.{name}", now.clone()),
            ):
                self.stored_tensors[key] = _extend_rows_with_fresh_values(
                    self.stored_tensors[key], fresh, name
                )
        self._warn_of_steep_penalty(ctx)

    def add_penalty_gradients(self, ctx: TaskTrainingContext) -> None:
        """Add the penalty's gradient penalty_strength · importance (θ - anchor), then scale down
        steep gradients.
        """
        # A parameter without a gradient is not stepped, so nothing could act on a pull.
        names = [
            n for n in self._list_penalised_parameters(ctx) if ctx.trainable[n].grad is not None
        ]
        if not names:
            return
        weights = [ctx.trainable[name] for name in names]
        grads = [p.grad for p in weights if p.grad is not None]
        pull = torch._foreach_sub(
            [p.detach() for p in weights], [self.stored_tensors[f"anchor.{n}"] for n in names]
        )
        # `_foreach` calls handle all parameters at once: a loop would launch three kernels for
        # each.
        torch._foreach_mul_(
            pull, [self.stored_tensors[self.get_importance_key(name)] for name in names]
        )
        torch._foreach_add_(grads, pull, alpha=self.penalty_strength)
        scales = self._compute_gradient_scale_by_parameter(ctx)
        slowed = [(g, scales[name]) for g, name in zip(grads, names, strict=True) if name in scales]
        if slowed:
            torch._foreach_mul_([g for g, _ in slowed], [scale for _, scale in slowed])

    def compute_penalty(self, ctx: TaskTrainingContext) -> float:
        """Compute the penalty: penalty_strength / 2 Σ importance (θ - anchor)² over trainable
        parameters.
        """
        total = 0.0
        for name in self._list_penalised_parameters(ctx):
            delta = ctx.trainable[name].detach() - self.stored_tensors[f"anchor.{name}"]
            # Waits for the device: for logs and tests alone.
            total += float(
                (self.stored_tensors[self.get_importance_key(name)] * delta.square()).sum()
            )
        return self.penalty_strength / 2 * total

    def _list_penalised_parameters(self, ctx: TaskTrainingContext) -> list[str]:
        """List the trainable parameters with a stored importance; empty at strength 0."""
        return (
            [n for n in ctx.trainable if self.get_importance_key(n) in self.stored_tensors]
            if self.penalty_strength > 0
            else []
        )

    def _compute_importance_limit(self, ctx: TaskTrainingContext, name: str) -> float:
        """Compute the largest importance at which a parameter still trains stably at its full
        learning rate.

        There r · penalty_strength · importance = 1. Infinity means that there is no limit.
        """
        optimizer = ctx.recipe.optimizer
        # Adam divides by the gradient's own size, so no step grows with the penalty.
        if optimizer.name != "sgd":
            return math.inf
        rate = optimizer.get_peak_learning_rate(name) / (1 - optimizer.momentum)
        if optimizer.momentum > 0:
            # Dampening scales each gradient as it enters the momentum buffer.
            rate *= 1 - optimizer.dampening
        # A limit too large for float32 is no limit.
        steepness = rate * self.penalty_strength
        return 1 / steepness if steepness > 1 / LARGEST else math.inf

    def _compute_gradient_scale_by_parameter(self, ctx: TaskTrainingContext) -> dict[str, Tensor]:
        """Compute gradient factors min(1, limit / importance) for parameters with too large an
        importance.
        """
        # Importance and rates are constant within a task, so the scales are computed once.
        if "scales" not in ctx.cache:
            ctx.cache["scales"] = {
                # An importance of 0 gives infinity, which the clamp turns into a full step.
                name: (limit / value).clamp_max(1)
                for name in self._list_penalised_parameters(ctx)
                for value, limit in [
                    (
                        self.stored_tensors[self.get_importance_key(name)],
                        self._compute_importance_limit(ctx, name),
                    )
                ]
                if bool((value > limit).any())
            }
        scales: dict[str, Tensor] = ctx.cache["scales"]
        return scales

    def _warn_of_steep_penalty(self, ctx: TaskTrainingContext) -> None:
        """Warn if the penalty is too steep for the learning rate, so that parameters learn more
        slowly.
        """
        scales = self._compute_gradient_scale_by_parameter(ctx)
        if scales:
            slowed = sum(int((scale < 1).sum()) for scale in scales.values())
            slowest = min(float(scale.min()) for scale in scales.values())
            parameter_count = sum(
                self.stored_tensors[self.get_importance_key(name)].numel()
                for name in self._list_penalised_parameters(ctx)
            )
            ctx.warn(
                f"{self.name}: the penalty is too steep for lr {ctx.recipe.optimizer.lr:g}: "
                f"{slowed} of {parameter_count} parameters take smaller steps, down to {slowest:.2g} of the rate"
            )


def iterate_example_chunks(
    batches: Iterable[TrainingBatch], limit: float = math.inf
) -> Iterable[tuple[Tensor, Tensor]]:
    """Yield training examples (x, y) in chunks of at most CHUNK, up to `limit` in total."""
    examples_left = limit
    for batch in batches:
        for start in range(0, batch.y.shape[0], CHUNK):
            # The last chunk ends at the limit, so that exactly so many examples are measured.
            rows = slice(start, start + int(min(CHUNK, examples_left)))
            x, y = batch.x[rows], batch.y[rows]
            yield x, y
            examples_left -= y.shape[0]
            if examples_left <= 0:
                return


def clone_parameter_values(ctx: TaskTrainingContext, name: str) -> Tensor:
    """Return a copy of a parameter's values, in its memory layout."""
    return ctx.network.get_parameter(name).detach().clone(memory_format=torch.preserve_format)


def _extend_rows_with_fresh_values(old: Tensor, fresh: Tensor, name: str) -> Tensor:
    """Extend the tensor `old` to the shape of `fresh`, whose values fill the added rows.

    Raises ValueError for shapes that do not fit.
    """
    if (
        old.dim() != fresh.dim()
        or old.shape[1:] != fresh.shape[1:]
        or old.shape[0] > fresh.shape[0]
    ):
        raise ValueError(f"the stored importance of {name} has shape {tuple(old.shape)}")
    fresh[: old.shape[0]] = old
    return fresh
