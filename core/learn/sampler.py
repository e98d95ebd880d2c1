"""Which images make which batch: a pure function of the epoch's table, so nothing needs saving.

`shuffled` is a permutation cut into batches. `stratified` gives every class its share of every batch, rare
classes repeating within the epoch (the batches of FAST, Varno et al. 2020).
"""

from __future__ import annotations

import torch
from torch import Tensor


def batches(sampler: str, order: Tensor, rows: Tensor, labels: Tensor, size: int) -> list[Tensor]:
    """Index batches of one epoch.

    order: float [N], the table's column 0. rows: int64, the training rows. labels: int64 [N]. A last batch of
    one joins the one before it: BatchNorm cannot take a single example.
    """
    ranked = rows[order[rows].argsort(stable=True)]
    if sampler == "stratified":
        return _stratified(ranked, labels, size)
    parts = list(ranked.split(size))  # type: ignore[no-untyped-call]
    if len(parts) > 1 and parts[-1].numel() == 1 and size > 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def count(sampler: str, n: int, size: int) -> int:
    """Batches per epoch of n training rows."""
    full = -(-n // size)
    return full - 1 if sampler == "shuffled" and full > 1 and size > 1 and n % size == 1 else full


def _stratified(ranked: Tensor, labels: Tensor, size: int) -> list[Tensor]:
    """floor(M / N) examples per class and batch, M mod N more by rotation; ceil(n / M) batches."""
    present = labels[ranked].unique(sorted=True).tolist()  # type: ignore[no-untyped-call]
    by_class = [ranked[labels[ranked] == c].tolist() for c in present]
    used = [0] * len(by_class)
    out: list[Tensor] = []
    turn = 0
    for _ in range(-(-ranked.numel() // size)):
        share, extra = divmod(size, len(by_class))
        wanted = [share] * len(by_class)
        for k in range(extra):
            wanted[(turn + k) % len(by_class)] += 1
        turn += extra
        picked: list[int] = []
        for c, members in enumerate(by_class):
            picked += [members[(used[c] + k) % len(members)] for k in range(wanted[c])]
            used[c] += wanted[c]
        out.append(torch.tensor(picked))
    return out
