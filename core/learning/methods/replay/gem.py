"""Gradient episodic memory: no step may raise the loss on the stored examples of an earlier task.

Every step computes g_k, the gradient of the mean cross-entropy on all stored examples of task k. If
the step's gradient g opposes one of them, g becomes the closest vector that opposes none (Lopez-Paz
& Ranzato 2017); otherwise it is unchanged, bit for bit. The loss never includes stored examples.
With more than 20 earlier tasks the oldest ones share one constraint, the mean over all of their
examples.

`memory_batch` bounds the cost of a step: g_k is then the mean over that many stored examples of
task k, drawn again for each step without replacement. Its expectation is the gradient on all of
them, as in stochastic gradient descent; a single step may raise the loss on the examples that it
did not draw.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from core.learning.data.augment import derive_seed
from core.learning.data.transfer import copy_tensor_to_device
from core.learning.memory.gradient import (
    add_vector_to_gradient,
    compute_replay_gradient_vector,
    read_gradient_vector,
)
from core.learning.memory.per_task import PerTaskReplayBuffer
from core.learning.memory.reservoir import ReplayItems
from core.learning.methods.method import Method, TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.optimizers.gem_dual import compute_gram_and_dots, solve_gem_dual_problem
from core.learning.recipe import NotNegative, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch

CONSTRAINTS = 20
_DRAWS = 6
"""Key of this module's random draws among a job's seeds; no other part of a job uses it."""
# Bytes of gradients of stored examples in memory at once; beyond that they are computed twice.
GRADIENT_BYTES = 4 * 2**30


class GemHyper(StrictRecipeModel):
    """Hyper-parameters of the method `gem` (gradient episodic memory).

    `memory`: examples stored of each task; 0: none. `gamma`: lower bound of each earlier task's
    weight in a projected step. Larger values favour old tasks. `memory_batch`: examples that a
    constraint uses in a step; None: all.
    """

    memory: Annotated[int, Field(ge=0, le=1_000_000)] = 256
    gamma: NotNegative = 0.5
    memory_batch: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


@register_method
class GemMethod(Method):
    """The method `gem` (gradient episodic memory): a linear constraint on the gradient per earlier
    task.
    """

    name = "gem"
    footprint = TrainingMemoryMultiples(growing=1.0, images=256)
    description = (
        "Gradient episodic memory: projects each step so that no earlier task's memory gets worse. "
        "Every step costs a pass over all memories, or over `memory_batch` images of each."
    )
    source = "Lopez-Paz & Ranzato 2017, arXiv 1706.08840"
    Hyper = GemHyper
    neutral = GemHyper(memory=0)
    inherited_state = ("buffer",)
    remembers = "buffer"
    no_shards = ""
    hyper: GemHyper

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Cut the replay buffer to its share per task when a task begins."""
        self._task_replay_buffer.trim_each_task_to_share()

    def project_gradient(self, ctx: TaskTrainingContext) -> None:
        """Project the gradient if it opposes the gradient of any earlier task's examples."""
        memory = self._task_replay_buffer
        constraints = [
            self._draw_constraint_examples(ctx, number, memory.get_task_examples(tasks))
            for number, tasks in enumerate(
                _partition_tasks_into_gem_constraints(memory.tasks_with_stored_examples)
            )
        ]
        if not constraints:
            return
        parameters = list(ctx.trainable.values())
        t = len(constraints)
        # In float64: the dual divides by differences of these products.
        gram = torch.zeros(t, t, dtype=torch.float64)
        dots = torch.zeros(t, dtype=torch.float64)
        # P and q are sums over parameters, so they are computed block by block within the limit.
        blocks = _split_parameters_into_limited_runs(parameters, GRADIENT_BYTES // (4 * t))
        for block in blocks:
            # Allocated once and filled, since a list of gradients and their stack would take twice
            # the memory.
            rows = torch.empty(t, sum(p.numel() for p in block), device=ctx.device)
            for row, items in zip(rows, constraints, strict=True):
                row.copy_(compute_replay_gradient_vector(self, ctx, items, block))
            more_gram, more_dots = compute_gram_and_dots(rows, read_gradient_vector(block))
            gram, dots = gram + more_gram, dots + more_dots
        # No constraint is violated: leave the gradient as it is, bit for bit.
        if not bool((dots < 0).any()):
            return
        v = solve_gem_dual_problem(gram, dots, self.hyper.gamma)
        if len(blocks) == 1:
            # The gradients are still in memory: the projection is one product.
            add_vector_to_gradient(
                copy_tensor_to_device(v.to(rows.dtype), rows.device) @ rows, parameters
            )
            return
        # The rows did not fit in memory at once: compute the violated ones again.
        for weight, items in zip(v.tolist(), constraints, strict=True):
            if weight != 0:
                add_vector_to_gradient(
                    weight * compute_replay_gradient_vector(self, ctx, items, parameters),
                    parameters,
                )

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Store examples of the finished task in the replay buffer."""
        self._task_replay_buffer.store_task_examples(batches, ctx.task)

    def erase_task_examples(self, tasks: set[int]) -> None:
        """Delete every stored example of these tasks."""
        self._task_replay_buffer.remove_items_of_tasks(tasks)

    def _draw_constraint_examples(
        self, ctx: TaskTrainingContext, number: int, items: ReplayItems
    ) -> ReplayItems:
        """Draw the replay examples with which this step computes constraint `number`.

        The draw is a function of seed, task and step alone: a resumed run repeats it without a
        generator in its snapshot.
        """
        size, n = self.hyper.memory_batch, items.labels.shape[0]
        if size is None or size >= n:
            return items
        seed = derive_seed(ctx.recipe.seed, ctx.task, ctx.step, number, _DRAWS)
        # Sorted, so that the sum over them does not depend on the order of the draw.
        rows = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:size].sort().values
        tasks, rows = (
            items.tasks.index_select(0, rows),
            copy_tensor_to_device(rows, items.labels.device),
        )
        images, labels = (part.index_select(0, rows) for part in (items.images, items.labels))
        return ReplayItems(images, labels, tasks, None, None)

    @property
    def _task_replay_buffer(self) -> PerTaskReplayBuffer:
        return PerTaskReplayBuffer(self.state["buffer"], self.hyper.memory)


def _partition_tasks_into_gem_constraints(tasks: list[int]) -> list[list[int]]:
    """Group earlier tasks into GEM constraints: one each, or the oldest together above the
    limit.
    """
    # A step costs a pass for each constraint, so their number is bounded for long streams.
    spare = max(0, len(tasks) - CONSTRAINTS)
    return [tasks[: spare + 1], *([task] for task in tasks[spare + 1 :])] if tasks else []


def _split_parameters_into_limited_runs(
    parameters: list[nn.Parameter], numbers: int
) -> list[list[nn.Parameter]]:
    """Group parameters into runs of one or more, with at most `numbers` elements each.

    A larger parameter is a run by itself.
    """
    out: list[list[nn.Parameter]] = [[]]
    size = 0
    for parameter in parameters:
        if out[-1] and size + parameter.numel() > numbers:
            out.append([])
            size = 0
        out[-1].append(parameter)
        size += parameter.numel()
    return out
