"""Losses on replayed examples, in forward passes that do not change the main pass's statistics.

With one head all items go through it together. With a head per task the features are computed once,
and each item's logits come from the head of its own task.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.data.transfer import copy_tensor_to_device
from core.learning.memory.reservoir import ReplayItems, ReservoirBuffer
from core.learning.methods.method import Method
from core.learning.training.context import TaskTrainingContext

Groups = list[tuple[Tensor | None, Tensor]]
"""Pairs (rows, logits [b, C] in float32) for each head involved; rows None means all of them."""


Draw = tuple[ReplayItems, Tensor, ReplayItems]
"""ReplayItems of a slice, their augmentation table [b, columns], and the items of all slices."""


def draw_replay_items_of_batch_slice(
    ctx: TaskTrainingContext, reservoir: ReservoirBuffer, size: int, count: int
) -> list[Draw]:
    """Draw `count` times up to `size` replay items, and return this batch slice's share of each
    draw.

    The slices of a batch share the draws of its step, which are made with its first slice.
    """
    if ctx.part.of == 1:
        drawn = [
            reservoir.draw_items_and_augmentation_numbers(size, ctx.augment.columns)
            for _ in range(count)
        ]
        return [(items, table, items) for items, table in drawn]
    if "draws" not in ctx.scratch:
        ctx.scratch["draws"] = [
            reservoir.draw_items_and_augmentation_numbers(size, ctx.augment.columns)
            for _ in range(count)
        ]
    draws: list[Draw] = []
    for all_items, table in ctx.scratch["draws"]:
        # Each slice replays its part of the draw, so that all slices together see it once.
        rows = ctx.part.get_row_range(all_items.labels.shape[0])
        draws.append((all_items.slice_items(rows), table[rows], all_items))
    return draws


def make_inputs_of_replay_items(
    ctx: TaskTrainingContext, items: ReplayItems, table: Tensor
) -> Tensor:
    """Make the network inputs of replay items: augmented and normalised images, or cached features.

    Args:
        ctx: the training context.
        items: the items.
        table: numbers for augmentation, [B, columns].
    """
    return ctx.make_replay_inputs(ctx.augment(items.images, None, table))


def compute_replay_logits_by_head(
    method: Method, ctx: TaskTrainingContext, x: Tensor, tasks: Tensor
) -> Groups:
    """Compute logits of replay items x [B, C, S, S] by the heads of their tasks, int64 [B] on the
    CPU.
    """
    return compute_replay_logits_jointly(method, ctx, [(x, tasks)])[0]


def compute_replay_logits_jointly(
    method: Method, ctx: TaskTrainingContext, parts: Sequence[tuple[Tensor, Tensor]]
) -> list[Groups]:
    """Compute logits of several (items, tasks) pairs in one joint forward pass."""
    # One forward pass for all parts: on a GPU a pass costs time for each call.
    x = torch.cat([x for x, _ in parts]) if len(parts) > 1 else parts[0][0]
    sizes = [tasks.shape[0] for _, tasks in parts]
    if ctx.scenario != "task":
        logits = method.forward(ctx.network, x, None).float()
        return [[(None, part)] for part in logits.split(sizes)]  # type: ignore[no-untyped-call]
    features = ctx.network.features(x).split(sizes)  # type: ignore[no-untyped-call]
    return [
        _compute_replay_logits_by_head(ctx, part, tasks)
        for part, (_, tasks) in zip(features, parts, strict=True)
    ]


def _compute_replay_logits_by_head(
    ctx: TaskTrainingContext, features: Tensor, tasks: Tensor
) -> Groups:
    """Compute each replay item's logits with the head of its task."""
    out: Groups = []
    for task in tasks.unique(sorted=True).tolist():  # type: ignore[no-untyped-call]
        rows = copy_tensor_to_device((tasks == task).nonzero().squeeze(1), features.device)
        out.append((rows, ctx.network.logits(features.index_select(0, rows), int(task)).float()))
    return out


def compute_replay_cross_entropy(groups: Groups, labels: Tensor) -> Tensor:
    """Compute the mean cross-entropy of replay items, each under its own task's head."""
    if groups[0][0] is None:
        return functional.cross_entropy(groups[0][1], labels)
    losses = [
        functional.cross_entropy(logits, labels.index_select(0, rows), reduction="sum")
        for rows, logits in groups
        if rows is not None
    ]
    # Sums over heads, divided once: a mean of the heads' means would weigh small heads more.
    return torch.stack(losses).sum() / labels.shape[0]


def compute_replay_logits_squared_error(groups: Groups, stored: Tensor) -> Tensor:
    """Compute the mean squared difference of replay items' logits from the stored ones.

    Heads only grow, so output i keeps its meaning. Outputs added since an item was stored have the
    target 0, as in a head with rows of zeros for them.

    Args:
        groups: logits by head.
        stored: [B, W], zeros beyond the outputs that existed when an item was stored.
    """
    total: Tensor | None = None
    count = 0
    for rows, logits in groups:
        target = stored if rows is None else stored.index_select(0, rows)
        n = min(target.shape[1], logits.shape[1])
        target = functional.pad(target[:, :n], (0, logits.shape[1] - n))
        error = (logits - target).square().sum()
        total = error if total is None else total + error
        count += logits.numel()
    assert total is not None
    return total / count
