"""Choice of images for each batch: a pure function of seed, task and epoch, without saved state.

"shuffled" is a permutation cut into batches. "stratified" gives every class its share of every
batch, from an endless cycle per class that continues from epoch to epoch; rare classes repeat
within an epoch. In Varno et al. 2020 (arXiv 2007.01388) batches have k examples of each class;
shares and rotation for other sizes are this project's.

With `balanced_batches`, the replay buffer is filled and drawn evenly over classes as well
(`core/learning/memory/class_balance.py`). Even so, a task of one known class would get half of each step. So
a task of known classes alone takes its classes' share of the recipe's batch: replayed images supply
the other classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.learning.data.augment import derive_seed
from core.learning.methods.method import Method
from core.learning.training.context import TaskTrainingContext

HEAD = "head.weight"


def split_shuffled_rows_into_batches(order: Tensor, rows: Tensor, size: int) -> list[Tensor]:
    """Split the training rows int64 of an epoch, shuffled by `order` float [N], into batches.

    A last batch of one image joins the batch before it: BatchNorm cannot train on a single image.
    """
    ranked = rows[order[rows].argsort(stable=True)]
    parts = list(ranked.split(size))  # type: ignore[no-untyped-call]
    # A recipe with batches of single images gets them: only a remainder is joined.
    if len(parts) > 1 and parts[-1].numel() == 1 and size > 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def draw_class_balanced_row_batches(
    seed: int, epoch: int, rows: Tensor, labels: Tensor, size: int, batches: int | None = None
) -> list[Tensor]:
    """Make an epoch's batches of training rows in which the classes present have equal shares.

    Every batch has floor(M / N) examples of each class. The M mod N further places go to the
    classes in rotation.

    Args:
        seed: of the classes' cycles.
        epoch: 0, 1, …
        rows: int64 [n], the training rows.
        labels: int64, of all rows.
        size: M, images per batch.
        batches: batches per epoch; None: ceil(n / M).
    """
    labels = labels[rows]
    present, sizes = labels.unique(sorted=True, return_counts=True)  # type: ignore[no-untyped-call]
    members = rows[labels.argsort(stable=True)].split(sizes.tolist())  # type: ignore[no-untyped-call]
    share, extra = divmod(size, len(present))
    per_epoch = batches or count_epoch_batches("stratified", rows.numel(), size)
    first = epoch * per_epoch
    # Number of picks of each class before each batch: its share, and its turns in the rotation.
    before = torch.arange(first, first + per_epoch + 1)
    chosen: list[Tensor] = []
    places: list[Tensor] = []
    for class_index, c in enumerate(present.tolist()):
        picks = before * share + (before * extra - class_index + len(present) - 1).div(
            len(present), rounding_mode="floor"
        )
        chosen.append(
            _draw_from_shuffled_cycle(
                members[class_index], derive_seed(seed, c), int(picks[0]), int(picks[-1])
            )
        )
        # The batch of each pick: the difference of running counts is what a batch takes.
        places.append(torch.arange(per_epoch).repeat_interleave(picks.diff()))
    # A stable sort keeps the classes' order within a batch.
    in_order = torch.cat(places).argsort(stable=True)
    return list(torch.cat(chosen)[in_order].split(size))  # type: ignore[no-untyped-call]


def count_epoch_batches(sampler: str, n: int, size: int) -> int:
    """Return the number of batches in an epoch of n training rows."""
    full = -(-n // size)
    # A last batch of one image joins the one before it, as in `split_shuffled_rows_into_batches`.
    return full - 1 if sampler == "shuffled" and full > 1 and size > 1 and n % size == 1 else full


def compute_share_of_new_images_in_batch(
    ctx: TaskTrainingContext, method: Method, labels: Tensor
) -> float:
    """Return the share of the batch size for the new task's images, beside replayed ones, in (0,
    1].

    Less than 1 only for known classes alone, under a head that they share with others whose images
    are replayed. With the shares of the classes in replay, each of the task's then has about twice
    that of another, not the half of all.

    Args:
        labels: int64 [n], rows of the head, of the training images.
    """
    if not (ctx.recipe.balanced_batches and method.replays) or ctx.first or ctx.scenario == "task":
        return 1.0
    # Rows that the parent had are known classes; new classes need all of the batch.
    before = ctx.weights_at("update_start").get(HEAD)
    present: Tensor = labels.unique()  # type: ignore[no-untyped-call]
    if before is None or int(present.max()) >= before.shape[0]:
        return 1.0
    return present.numel() / len(ctx.network.classes)


def _draw_from_shuffled_cycle(members: Tensor, seed: int, start: int, stop: int) -> Tensor:
    """Return entries start … stop - 1 of a class's endless sequence of shuffled passes over its
    rows.
    """
    n = members.numel()
    first, last = start // n, -(-stop // n)
    passes = [torch.zeros(0, dtype=torch.int64)]
    for number in range(first, last):
        # A pass of a class depends on its number alone, so that any epoch can be drawn without
        # those before.
        generator = torch.Generator().manual_seed(derive_seed(seed, number))
        passes.append(members[torch.randperm(n, generator=generator)])
    return torch.cat(passes)[start - first * n : stop - first * n]
