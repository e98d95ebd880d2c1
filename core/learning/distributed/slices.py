"""Slices of a batch: the rows of each, and its weight in the mean of the whole.

Let a batch of n images be cut into slices of n_1 + … + n_S = n. For a loss that is a mean over
images,

    (1/n) Σ_i l_i = Σ_s (n_s/n) · (1/n_s) Σ_{i in s} l_i,

so the gradient of the whole is the sum of the slices' gradients, each weighted by n_s/n. A term
that is a mean over other things (replayed images, outputs) is cut into as many slices of those,
weighted by their number. Other losses cannot be cut: those that compare images of a batch with each
other, or depend on the batch's classes. Their methods state the reason in `no_shards`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchSlice:
    """One of several equal slices of a training batch, computed by one rank."""

    number: int = 0
    of: int = 1
    images: int = 0

    def get_row_range(self, count: int) -> slice:
        """Return the range of this slice's rows among `count` rows.

        Ranges are contiguous and equally long; earlier slices have one more where needed.
        """
        each, more = divmod(count, self.of)
        # The remainder goes to the first slices, so lengths differ by one at most.
        begin = self.number * each + min(self.number, more)
        return slice(begin, begin + each + (self.number < more))

    def count_slice_rows(self, count: int) -> int:
        """Return the number of rows of this slice, of `count` in all."""
        rows = self.get_row_range(count)
        return int(rows.stop - rows.start)

    @property
    def loss_weight(self) -> float:
        """Weight of the slice's loss: the share n_s/n of the batch's images."""
        return self.count_slice_rows(self.images) / self.images

    def compute_mean_correction(self, slice_count: int, count: int) -> float:
        """Return the factor that corrects a slice's mean over `slice_count` of the batch's `count` items.

        Multiplied by `loss_weight`, it makes `slice_count` / `count`.
        """
        # Exactly 1 for a whole batch: a multiplication could change a bit.
        return 1.0 if self.of == 1 else slice_count / count / self.loss_weight


WHOLE = BatchSlice()
"""The only slice of an uncut batch."""


def count_batch_slices(shards: int, images: int) -> int:
    """Return the number of slices of a batch: `shards`, or one if the batch has fewer images."""
    # A slice without images would have no loss.
    return shards if images >= shards else 1


def choose_slice_process_count(shards: int, devices: int) -> int:
    """Choose the number of processes that share the slices of a batch.

    It is the greatest divisor of `shards` up to `devices`, and at least 1.
    """
    # A divisor gives each process as many slices: otherwise all would wait for one.
    return max(n for n in range(1, shards + 1) if shards % n == 0 and n <= max(1, devices))
