"""The network as the task found it, frozen: what distillation compares with.

It is the weights that the task started from, which every attempt at the task is given anew, so nothing of it is
ever saved. BatchNorm's buffers need no copy of their own: they do not move after the first task, and before it
there is nothing to distil.
"""

from __future__ import annotations

import copy

import torch

from core.learn.context import Context
from core.learn.networks import Network


def teacher(ctx: Context) -> Network:
    """In eval mode, on the run's device; made at its first use in a process.

    It has the shape of the network in training: rows of a head that this task has added (from `known_rows` on)
    answer nothing meaningful.
    """
    held: Network | None = ctx.derived.get("teacher")
    if held is None:
        held = copy.deepcopy(ctx.network).eval().requires_grad_(False)
        with torch.no_grad():
            for name, old in ctx.weights_at("update_start").items():
                held.get_parameter(name)[: old.shape[0]].copy_(old)
        ctx.derived["teacher"] = held
    return held


def known_rows(ctx: Context, name: str) -> int:
    """How many rows of a parameter were there before this task; 0 when it is new."""
    old = ctx.weights_at("update_start").get(name)
    return 0 if old is None else old.shape[0]
