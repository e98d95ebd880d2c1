"""Random augmentation of uint8 batches, driven by a table of random numbers.

The loop draws one table per epoch from (seed, task, epoch) and looks up its rows by image. So an
image's augmentation does not depend on batches, threads or interruptions. `auto` only shifts: a
shift never changes a label, while a flip changes digits, letters and road signs.
"""

from __future__ import annotations

import hashlib
from typing import Literal, get_args

import torch
from torch import Tensor

from core.learning.data import rand_augment
from core.learning.data.transfer import copy_tensor_to_device

COLUMNS = 3  # Columns of a table: vertical shift, horizontal shift, flip; each uniform in [0, 1).
WINDOW_BYTES, SLICE_BYTES = 512, 16_000
"""Bytes per image above which windows, or slices, are faster than lookups.

Measured by `bench.methods.augmentation`.
"""
Augment = Literal["auto", "none", "shift", "flip", "shift-flip", "rand-augment"]
NAMES: tuple[str, ...] = get_args(Augment)


def derive_seed(*parts: int) -> int:
    """Return a 63-bit seed, different for every tuple of integers (SHA-256).

    It is the same on every machine.
    """
    # A hash and no arithmetic: sums of small integers would repeat seeds.
    digest = hashlib.sha256(",".join(str(p) for p in parts).encode()).digest()
    # 63 bits fit a signed integer, in which seeds are stored.
    return int.from_bytes(digest[:8], "big") >> 1


def draw_epoch_random_numbers(
    seed: int, task: int, epoch: int, n: int, columns: int = COLUMNS
) -> Tensor:
    """Draw an epoch's table of uniform [0, 1) random numbers, float64 [n, 1 + columns].

    Column 0 orders the epoch, the others drive augmentation.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, task, epoch))
    # float64, so that ties in the order of an epoch are practically impossible.
    return torch.rand(n, 1 + columns, generator=generator, dtype=torch.float64)


class Augmentation:
    """An image augmentation, one of `NAMES`. Raises ValueError for another name.

    Shifts are whole pixels, up to size // 8 in each direction; edge pixels are repeated.
    "rand-augment" shifts, flips, then applies RandAugment. `columns`: number of columns that its
    table needs.
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
    def changes_images(self) -> bool:
        """True if the augmentation changes any image."""
        return bool(self.shift) or self.flip

    def move_random_numbers_to_device(self, table: Tensor, device: torch.device) -> Tensor:
        """Move a table of random numbers [n, columns] to the device on which images are augmented.

        A table of RandAugment stays on the CPU: the host has to know which operations it calls.
        """
        return table if self.rand else copy_tensor_to_device(table, device)

    def __call__(self, images: Tensor, index: Tensor | None, table: Tensor) -> Tensor:
        """Augment images uint8 [N, S, S, C] by table [B, columns] → [B, S, S, C].

        Args:
            images: all images.
            index: rows int64 [B], on the device of the images; None: all.
            table: on either device; with RandAugment on the CPU.
        """
        if not self.changes_images:
            return images if index is None else images.index_select(0, index)
        if index is None:
            index = torch.arange(len(images), device=images.device)
        numbers = copy_tensor_to_device(table[:, :COLUMNS], images.device)
        # Uniform whole numbers from -shift to shift.
        offsets = (numbers[:, :2] * (2 * self.shift + 1)).floor_().long().sub_(self.shift)
        flips = numbers[:, 2] < 0.5 if self.flip else None
        bytes_each = images[0].numel()
        if images.device.type != "cpu" or bytes_each < WINDOW_BYTES:
            moved = _shift_and_flip_images_by_lookup(images, index, offsets, flips)
        elif bytes_each < SLICE_BYTES:
            moved = _shift_and_flip_images_by_windows(images, index, offsets, flips, self.shift)
        else:
            moved = _shift_and_flip_images_by_slices(images, index, offsets, flips)
        return rand_augment.apply_rand_augment(moved, table[:, COLUMNS:]) if self.rand else moved


# Three ways to the same bytes, each fastest on some devices and sizes. Each takes images uint8 [N,
# S, S, C], rows int64 [B], offsets int64 [B, 2] (vertical, horizontal: the pixel that comes to the
# top left corner) and flips bool [B] or None, and returns [B, S, S, C], contiguous.


def _shift_and_flip_images_by_lookup(
    images: Tensor, index: Tensor, offsets: Tensor, flips: Tensor | None
) -> Tensor:
    """Shift images by looking up every pixel: a single kernel, fast on accelerators and for tiny
    images.
    """
    size = images.shape[1]
    positions = torch.arange(size, device=images.device)
    rows = (positions + offsets[:, :1]).clamp_(0, size - 1)
    columns = (positions + offsets[:, 1:]).clamp_(0, size - 1)
    if flips is not None:
        columns = torch.where(flips[:, None], columns.flip(1), columns)
    return images[index[:, None, None], rows[:, :, None], columns[:, None, :]]


def _shift_and_flip_images_by_windows(
    images: Tensor, index: Tensor, offsets: Tensor, flips: Tensor | None, shift: int
) -> Tensor:
    """Shift images by copying a window of each, after padding with `shift` repeated edge pixels."""
    count, size, channels = len(index), images.shape[1], images.shape[3]
    wide, inner = size + 2 * shift, slice(shift, shift + size)
    padded = images.new_empty((count, wide, wide, channels))
    padded[:, inner, inner] = images.index_select(0, index)
    padded[:, inner, :shift] = padded[:, inner, shift : shift + 1]
    padded[:, inner, shift + size :] = padded[:, inner, shift + size - 1 : shift + size]
    # Rows after columns, so that the corners are filled as well.
    padded[:, :shift] = padded[:, shift : shift + 1]
    padded[:, shift + size :] = padded[:, shift + size - 1 : shift + size]
    row_stride, places = wide * channels, 2 * shift + 1
    # [B, vertical, horizontal, S, S · C]: all windows of each image, as views of its memory.
    windows = padded.as_strided(
        (count, places, places, size, size * channels),
        (wide * row_stride, row_stride, channels, row_stride, 1),
    )
    picked = windows[torch.arange(count), offsets[:, 0] + shift, offsets[:, 1] + shift]
    moved = picked.view(count, size, size, channels)
    if flips is not None:
        flipped = flips.nonzero().squeeze(1)
        moved[flipped] = moved[flipped].flip(2)
    return moved


def _shift_and_flip_images_by_slices(
    images: Tensor, index: Tensor, offsets: Tensor, flips: Tensor | None
) -> Tensor:
    """Shift images by copying a rectangle of each, then repeating its edges.

    This suits images so large that calls cost little.
    """
    size = images.shape[1]
    moved = images.new_empty((len(index), *images.shape[1:]))
    mirrored = [False] * len(index) if flips is None else flips.tolist()
    places = zip(moved, index.tolist(), offsets.tolist(), mirrored, strict=True)
    for target, row, (down, right), flip in places:
        # A shift before the flip equals the opposite shift after it.
        image, right = (images[row].flip(1), -right) if flip else (images[row], right)
        top, bottom = max(0, -down), size - max(0, down)
        left, end = max(0, -right), size - max(0, right)
        target[top:bottom, left:end] = image[top + down : bottom + down, left + right : end + right]
        target[top:bottom, :left] = target[top:bottom, left : left + 1]
        target[top:bottom, end:] = target[top:bottom, end - 1 : end]
        target[:top] = target[top]
        target[bottom:] = target[bottom - 1]
    return moved
