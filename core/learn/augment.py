"""Random changes of uint8 batches, driven by a table of random numbers.

The loop draws one table per epoch from (seed, task, epoch) and looks up its rows by image. So an image's
augmentation does not depend on batches, threads or interruptions. `auto` only shifts: a shift never changes a
label, while a flip changes digits, letters and road signs.
"""

from __future__ import annotations

import hashlib
from typing import Literal, get_args

import torch
from torch import Tensor

from core.learn import rand_augment
from core.learn.transfer import send

COLUMNS = 3  # of a table: vertical shift, horizontal shift, flip; each uniform in [0, 1)
Augment = Literal["auto", "none", "shift", "flip", "shift-flip", "rand-augment"]
NAMES: tuple[str, ...] = get_args(Augment)


def epoch_seed(*parts: int) -> int:
    """A 63-bit seed, different for every tuple of integers and the same on every machine (SHA-256)."""
    digest = hashlib.sha256(",".join(str(p) for p in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def epoch_table(seed: int, task: int, epoch: int, n: int, columns: int = COLUMNS) -> Tensor:
    """Uniform [0, 1) float64 [n, 1 + columns]: column 0 orders the epoch, the others drive augmentation."""
    generator = torch.Generator().manual_seed(epoch_seed(seed, task, epoch))
    return torch.rand(n, 1 + columns, generator=generator, dtype=torch.float64)


class Augmentation:
    """One of `NAMES`. Raises ValueError for another name.

    Shifts are whole pixels, up to size // 8 in each direction; edge pixels are repeated. "rand-augment"
    shifts, flips, then applies RandAugment. `columns`: of the table that it needs.
    """

    def __init__(self, name: str, size: int) -> None:
        if name not in NAMES:
            raise ValueError(f"unknown augmentation {name!r}: one of {', '.join(NAMES)}")
        self.shift = size // 8 if name in ("auto", "shift", "shift-flip", "rand-augment") else 0
        self.flip = name in ("flip", "shift-flip", "rand-augment")
        self.rand = name == "rand-augment"
        self.columns = COLUMNS + (rand_augment.COLUMNS if self.rand else 0)
        self._size = size

    @property
    def active(self) -> bool:
        """Whether any image is changed."""
        return bool(self.shift) or self.flip

    def placed(self, table: Tensor, device: torch.device) -> Tensor:
        """Return a table [n, columns] of the CPU where `__call__` reads it: on the device of the images.

        That of RandAugment stays: the host has to know which operations it calls.
        """
        return table if self.rand else send(table, device)

    def __call__(self, images: Tensor, index: Tensor | None, table: Tensor) -> Tensor:
        """Augment images uint8 [N, S, S, C] by table [B, columns] → [B, S, S, C].

        index: rows int64 [B], on the device of the images; None: all. table: on either device; with RandAugment
        on the CPU.
        """
        if not self.active:
            return images if index is None else images.index_select(0, index)
        if index is None:
            index = torch.arange(len(images), device=images.device)
        numbers = send(table[:, :COLUMNS], images.device)
        line = torch.arange(self._size, device=images.device)
        span = 2 * self.shift + 1
        offsets = (numbers[:, :2] * span).floor_().long().sub_(self.shift)
        rows = (line + offsets[:, :1]).clamp_(0, self._size - 1)
        columns = (line + offsets[:, 1:2]).clamp_(0, self._size - 1)
        if self.flip:
            columns = torch.where(numbers[:, 2:3] < 0.5, columns.flip(1), columns)
        moved = images[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return rand_augment.rand_augment(moved, table[:, COLUMNS:]) if self.rand else moved
