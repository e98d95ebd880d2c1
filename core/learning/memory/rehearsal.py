"""Exemplars in training: their selection from a task's images, and their share of each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.data.augment import derive_seed, draw_epoch_random_numbers
from core.learning.data.transfer import copy_tensor_to_device
from core.learning.memory.exemplars import ExemplarBuffer
from core.learning.networks import Network
from core.learning.training.context import TaskTrainingContext, TrainingBatch


def compute_normalised_features(network: Network, x: Tensor) -> Tensor:
    """Compute the network's features float32 [B, D], each normalised to length one."""
    return functional.normalize(network.features(x).float())


@torch.no_grad()
def choose_exemplars_by_herding(
    network: Network,
    batches: Iterable[TrainingBatch],
    count: int,
    alive: Callable[[], None] = lambda: None,
) -> dict[int, Tensor]:
    """Choose exemplars of each class by herding: label → raw images uint8 [min(count, n), S, S, C].

    Args:
        network: the feature extractor.
        batches: all batches of the task; all but the last must have the same size.
        count: images per class.
        alive: called for each class, see `TaskTrainingContext`.
    """
    features, labels, images = _compute_features_and_image_loader(network, batches)
    lists: dict[int, Tensor] = {}
    for label in labels.unique().tolist():  # type: ignore[no-untyped-call]
        alive()
        rows = (labels == label).nonzero().squeeze(1)
        lists[label] = images(rows[select_rows_by_herding(features[rows], count)])
    return lists


@torch.no_grad()
def select_rows_by_herding(features: Tensor, count: int) -> Tensor:
    """Select feature rows [N, D] by herding, so that their mean stays near the mean of all; int64.

    Welling 2009; iCaRL (Rebuffi et al. 2017), algorithm 4: every prefix of the selection has a mean
    close to the mean of all rows.

    p_k = argmin over the remaining rows of ‖μ - (φ + Σ_{j<k} φ(p_j)) / k‖; ties go to the lowest
    row. The mean μ is not normalised again.
    """
    # In float64: the order must not depend on how float32 sums were rounded.
    features = features.double()
    mean = features.mean(0)
    squares = features.square().sum(1)
    total = torch.zeros_like(mean)
    chosen: list[int] = []
    for k in range(1, min(count, features.shape[0]) + 1):
        # ‖kμ - total - φ‖² without the terms that all rows share: one product instead of N
        # differences.
        distance = squares - 2 * (features @ (k * mean - total))
        best = int((distance == distance.min()).nonzero()[0])
        chosen.append(best)
        total += features[best]
        squares[best] = torch.inf  # Never select this row again.
    return torch.tensor(chosen, dtype=torch.int64, device=features.device)


def draw_exemplars_to_add_to_batch(
    ctx: TaskTrainingContext, exemplars: ExemplarBuffer
) -> tuple[Tensor, Tensor] | None:
    """Draw the exemplars to add to this step's batch: augmented inputs and their labels.

    Each epoch has its own order of the exemplars and gives every batch its share, so each is used
    at most once per epoch. A batch gets at most the recipe's batch size.

    Returns:
        Inputs [b, C, S, S] and labels int64 [b]; None if this batch has no exemplars.
    """
    size = exemplars.size
    if size == 0:
        return None
    used_count = min(size, ctx.batches * ctx.recipe.batch_size)
    # Runs of nearly equal length, one for each batch of the epoch.
    begin, end = used_count * ctx.batch // ctx.batches, used_count * (ctx.batch + 1) // ctx.batches
    return _build_exemplar_inputs(ctx, exemplars, begin, end) if begin < end else None


def draw_exemplar_batch(
    ctx: TaskTrainingContext, exemplars: ExemplarBuffer
) -> tuple[Tensor, Tensor]:
    """Draw a whole batch of exemplars, cycling through the epoch's shuffled order.

    There must be at least one exemplar. Shapes as in `draw_exemplars_to_add_to_batch`.
    """
    size = min(exemplars.size, ctx.recipe.batch_size)
    return _build_exemplar_inputs(ctx, exemplars, ctx.batch * size, (ctx.batch + 1) * size)


def _build_exemplar_inputs(
    ctx: TaskTrainingContext, exemplars: ExemplarBuffer, begin: int, end: int
) -> tuple[Tensor, Tensor]:
    """Build inputs and labels of the exemplars at positions begin … end - 1 of the epoch's repeated
    order.
    """
    key = ctx.epoch, exemplars.size
    # The order is a function of seed, task, epoch and size, so the cache needs no saving.
    if ctx.cache.get("epoch") != key:
        seed, columns = derive_seed(ctx.recipe.seed, 2), ctx.augment.columns
        table = draw_epoch_random_numbers(seed, ctx.task, ctx.epoch, exemplars.size, columns)
        order, device = table[:, 0].argsort(stable=True), exemplars.images.device
        # In the epoch's order, so that a run of exemplars reads a run of the table.
        numbers = ctx.augment.move_random_numbers_to_device(table[order, 1:], device)
        ctx.cache |= {"epoch": key, "order": copy_tensor_to_device(order, device), "table": numbers}
    order, table = ctx.cache["order"], ctx.cache["table"]
    # Wraps around, so that a whole batch can be drawn near the end of the order.
    rows = order[torch.arange(begin, end, device=order.device) % exemplars.size]
    numbers = table[torch.arange(begin, end, device=table.device) % exemplars.size]
    images = ctx.augment(exemplars.images, rows, numbers)
    return ctx.make_replay_inputs(images), exemplars.labels[rows]


def _compute_features_and_image_loader(
    network: Network, batches: Iterable[TrainingBatch]
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Compute features [N, D] and labels int64 [N] of all batches; also return a loader of raw
    images.

    The loader takes rows int64 [n] and returns images uint8 [n, S, S, C].
    """
    features: list[Tensor] = []
    labels: list[Tensor] = []
    # Functions instead of batches, which would keep their inputs in memory.
    raw: list[Callable[[Tensor], Tensor]] = []
    for batch in batches:
        features.append(compute_normalised_features(network, batch.x))
        labels.append(batch.y)
        raw.append(batch.raw)
    size = len(labels[0])

    def load_images_of_rows(rows: Tensor) -> Tensor:
        return torch.cat([raw[row // size](torch.tensor([row % size])) for row in rows.tolist()])

    return torch.cat(features), torch.cat(labels), load_images_of_rows
