"""The teacher of distillation: the frozen network from the start of the task.

Its weights are the starting point, which every attempt at the task receives, so none of it is
saved. BatchNorm's buffers are shared with the student: they change in the first task only, which
has nothing to distil.
"""

from __future__ import annotations

import copy

import torch

from core.learning.networks import Network
from core.learning.training.context import TaskTrainingContext


def get_teacher_network(ctx: TaskTrainingContext) -> Network:
    """Return the teacher network (the previous version) in eval mode, built on first use in a
    process.

    It has the shape of the student. Its outputs for rows that this task added (from
    `count_parameter_rows_before_task` on) are meaningless.
    """
    network: Network | None = ctx.cache.get("teacher")
    if network is None:
        # A copy of the student has rows for new classes as well, which a version from the start
        # would lack.
        network = copy.deepcopy(ctx.network).eval().requires_grad_(False)
        with torch.no_grad():
            for name, old in ctx.weights_at("update_start").items():
                network.get_parameter(name)[: old.shape[0]].copy_(old)
        ctx.cache["teacher"] = network
    return network


def count_parameter_rows_before_task(ctx: TaskTrainingContext, name: str) -> int:
    """Return how many rows a parameter had before this task; 0 for a new parameter."""
    old = ctx.weights_at("update_start").get(name)
    return 0 if old is None else old.shape[0]
