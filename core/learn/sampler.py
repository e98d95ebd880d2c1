"""Choice of images for each batch: a pure function of seed, task and epoch, without saved state.

"shuffled" is a permutation cut into batches. "stratified" gives every class its share of every
batch, from an endless cycle per class that continues from epoch to epoch; rare classes repeat
within an epoch. In Varno et al. 2020 (arXiv 2007.01388) batches have k examples of each class;
shares and rotation for other sizes are this project's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.learn.augment import epoch_seed


def shuffle_batches(order: Tensor, rows: Tensor, size: int) -> list[Tensor]:
    """Return index batches of one epoch: the training rows int64, ranked by `order` float [N].

    A last batch of one image joins the batch before it: BatchNorm cannot train on a single image.
    """
    ranked = rows[order[rows].argsort(stable=True)]
    parts = list(ranked.split(size))  # type: ignore[no-untyped-call]
    if len(parts) > 1 and parts[-1].numel() == 1 and size > 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def stratify_batches(
    seed: int, epoch: int, rows: Tensor, labels: Tensor, size: int, batches: int | None = None
) -> list[Tensor]:
    """Return index batches of an epoch with equal shares of the N classes present.

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
    per_epoch = batches or batches_per_epoch("stratified", rows.numel(), size)
    first = epoch * per_epoch
    # Number of picks of each class before each batch: its share, and its turns in the rotation.
    before = torch.arange(first, first + per_epoch + 1)
    chosen: list[Tensor] = []
    places: list[Tensor] = []
    for place, c in enumerate(present.tolist()):
        picks = before * share + (before * extra - place + len(present) - 1).div(
            len(present), rounding_mode="floor"
        )
        chosen.append(
            _draw_from_cycle(members[place], epoch_seed(seed, c), int(picks[0]), int(picks[-1]))
        )
        places.append(torch.arange(per_epoch).repeat_interleave(picks.diff()))
    # A stable sort keeps the classes' order within a batch.
    in_order = torch.cat(places).argsort(stable=True)
    return list(torch.cat(chosen)[in_order].split(size))  # type: ignore[no-untyped-call]


def batches_per_epoch(sampler: str, n: int, size: int) -> int:
    """Return the number of batches in an epoch of n training rows."""
    full = -(-n // size)
    return full - 1 if sampler == "shuffled" and full > 1 and size > 1 and n % size == 1 else full


def _draw_from_cycle(members: Tensor, seed: int, start: int, stop: int) -> Tensor:
    """Return entries start … stop - 1 of a class's endless cycle of shuffled passes."""
    n = members.numel()
    first, last = start // n, -(-stop // n)
    passes = [torch.zeros(0, dtype=torch.int64)]
    for number in range(first, last):
        generator = torch.Generator().manual_seed(epoch_seed(seed, number))
        passes.append(members[torch.randperm(n, generator=generator)])
    return torch.cat(passes)[start - first * n : stop - first * n]
