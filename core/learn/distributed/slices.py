"""Slices of a batch: which rows each has, and how much their mean weighs in the mean of the whole.

Let a batch of n images be cut into slices of n_1 + … + n_S = n. For a loss that is a mean over images,

    (1/n) Σ_i l_i = Σ_s (n_s/n) · (1/n_s) Σ_{i in s} l_i,

so the gradient of the whole is the sum of the slices' gradients, each weighted by n_s/n. A term that is a mean
over other things (remembered images, outputs) is cut into as many slices of those, and weighs by their number.
A loss that is no such mean (one that compares images of a batch with each other, or looks at which classes the
batch has) cannot be cut: its method says so in `no_shards`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slice:
    """Slice `number` (from 0) of the `of` slices of a batch of `images` images."""

    number: int = 0
    of: int = 1
    images: int = 0

    def rows(self, count: int) -> slice:
        """The slice's rows of `count`: contiguous, and as many in each slice, earlier ones first to have one more."""
        each, more = divmod(count, self.of)
        begin = self.number * each + min(self.number, more)
        return slice(begin, begin + each + (self.number < more))

    def taken(self, count: int) -> int:
        """Return the number of rows, of `count`, that are the slice's."""
        rows = self.rows(count)
        return int(rows.stop - rows.start)

    @property
    def weight(self) -> float:
        """The share n_s/n of the batch's images, from which the loop weighs the slice's loss."""
        return self.taken(self.images) / self.images

    def relative(self, taken: int, count: int) -> float:
        """A factor for a mean over `taken` of `count` things, so that after `weight` it weighs by `taken` / `count`."""
        return 1.0 if self.of == 1 else taken / count / self.weight


WHOLE = Slice()
"""The whole batch."""


def count_slices(shards: int, images: int) -> int:
    """Return the number of slices of a batch: `shards`, or one where it has fewer images than that."""
    return shards if images >= shards else 1


def choose_ranks(shards: int, devices: int) -> int:
    """Return the number of processes that share the slices: the greatest divisor of `shards` up to `devices`, ≥ 1."""
    return max(n for n in range(1, shards + 1) if shards % n == 0 and n <= max(1, devices))
