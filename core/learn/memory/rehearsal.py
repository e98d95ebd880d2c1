"""Exemplars in training: how they are chosen from a task's images, and how batches include them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import functional

from core.learn.augment import epoch_seed, epoch_table
from core.learn.context import Batch, Context
from core.learn.memory.exemplars import Exemplars
from core.learn.memory.herding import herd
from core.learn.networks import Network
from core.learn.transfer import send


def unit_features(network: Network, x: Tensor) -> Tensor:
    """Features float32 [B, D], each normalised to length one."""
    return functional.normalize(network.features(x).float())


@torch.no_grad()
def choose_exemplars(
    network: Network, batches: Iterable[Batch], count: int, alive: Callable[[], None] = lambda: None
) -> dict[int, Tensor]:
    """Label → raw images uint8 [min(count, n), S, S, C] in herding order, by features of length one.

    Every batch but the last must have the same size. alive: called for each class, see `Context`.
    """
    features, labels, images = _seen(network, batches)
    lists: dict[int, Tensor] = {}
    for label in labels.unique().tolist():  # type: ignore[no-untyped-call]
        alive()
        rows = (labels == label).nonzero().squeeze(1)
        lists[label] = images(rows[herd(features[rows], count)])
    return lists


def exemplars_for_batch(ctx: Context, exemplars: Exemplars) -> tuple[Tensor, Tensor] | None:
    """The exemplars that this step's batch includes: augmented inputs [b, C, S, S] and labels int64 [b].

    Each epoch has its own order of the exemplars and gives every batch its share, so each is seen once. A
    batch gets at most the recipe's batch size. None: no exemplars for this batch.
    """
    size = exemplars.size
    if size == 0:
        return None
    taken = min(size, ctx.batches * ctx.recipe.batch_size)
    begin, end = taken * ctx.batch // ctx.batches, taken * (ctx.batch + 1) // ctx.batches
    return _inputs(ctx, exemplars, begin, end) if begin < end else None


def exemplar_batch(ctx: Context, exemplars: Exemplars) -> tuple[Tensor, Tensor]:
    """A whole batch of exemplars, in cycles through the epoch's order; there must be some.

    Shapes as `exemplars_for_batch`.
    """
    size = min(exemplars.size, ctx.recipe.batch_size)
    return _inputs(ctx, exemplars, ctx.batch * size, (ctx.batch + 1) * size)


def _inputs(ctx: Context, exemplars: Exemplars, begin: int, end: int) -> tuple[Tensor, Tensor]:
    """Inputs and labels at the positions begin … end - 1 of the epoch's order, which starts again at its end."""
    key = ctx.epoch, exemplars.size
    if ctx.cache.get("epoch") != key:
        seed, columns = epoch_seed(ctx.recipe.seed, 2), ctx.augment.columns
        table = epoch_table(seed, ctx.task, ctx.epoch, exemplars.size, columns)
        order, device = table[:, 0].argsort(stable=True), exemplars.images.device
        numbers = ctx.augment.placed(table[order, 1:], device)
        ctx.cache |= {"epoch": key, "order": send(order, device), "table": numbers}
    order, table = ctx.cache["order"], ctx.cache["table"]
    rows = order[torch.arange(begin, end, device=order.device) % exemplars.size]
    numbers = table[torch.arange(begin, end, device=table.device) % exemplars.size]
    images = ctx.augment(exemplars.images, rows, numbers)
    return ctx.inputs_of(images), exemplars.labels[rows]


def _seen(network: Network, batches: Iterable[Batch]) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Features [N, D] and labels int64 [N] of all batches, and their raw images by row."""
    features: list[Tensor] = []
    labels: list[Tensor] = []
    raw: list[Callable[[Tensor], Tensor]] = []  # not the batches: they hold their inputs
    for batch in batches:
        features.append(unit_features(network, batch.x))
        labels.append(batch.y)
        raw.append(batch.raw)
    size = len(labels[0])

    def images(rows: Tensor) -> Tensor:
        return torch.cat([raw[row // size](torch.tensor([row % size])) for row in rows.tolist()])

    return torch.cat(features), torch.cat(labels), images
