"""Sums that summarise a task's examples: second moments of features, sums by class, and counts.

With features h_i ∈ R^K of image i and its class c_i: G = Σ h_i h_iᵀ, Q = Σ h_i e(c_i)ᵀ and n_c, in
float64. Sums of tasks are added, so a classifier made of them does not depend on the order or
batching of the images, except for rounding. They are added in the order of tasks, so that the same
stream gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

CHUNK = 4096
"""Rows converted to float64 at once."""


@dataclass(frozen=True)
class FeatureSums:
    """Sums over training examples for closed-form classifiers: second moments, class sums, counts;
    float64.

    Attributes:
        gram: G, float64 [K, K].
        cross: Q, float64 [K, C], a column for each class.
        counts: n_c, int64 [C], examples of each class.
    """

    gram: Tensor
    cross: Tensor
    counts: Tensor

    @staticmethod
    def make_empty_sums(
        features: int, classes: int, device: torch.device | None = None
    ) -> FeatureSums:
        """Make feature sums over no examples, all zeros."""
        return FeatureSums(
            torch.zeros(features, features, dtype=torch.float64, device=device),
            torch.zeros(features, classes, dtype=torch.float64, device=device),
            torch.zeros(classes, dtype=torch.int64, device=device),
        )

    @property
    def example_count(self) -> int:
        """Number of examples in the feature sums, N."""
        return int(self.counts.sum())

    @cached_property
    def class_means(self) -> Tensor:
        """Mean feature vector μ of each class, float64 [C, K]; zeros for one without examples."""
        return (self.cross / self.counts.clamp(min=1)).T

    @cached_property
    def scatter_within_classes(self) -> Tensor:
        """Scatter of the examples about their class means, G − Σ_c n_c μ_c μ_cᵀ, float64 [K, K]."""
        # Kept, since each head reads it several times: with many classes the product takes long.
        return self.gram - self.cross @ self.class_means

    def add_examples(self, h: Tensor, labels: Tensor) -> None:
        """Add features and labels of examples to the feature sums, in place.

        Args:
            h: features [B, K], any float type.
            labels: columns of Q, int64 [B].
        """
        for outdated in ("class_means", "scatter_within_classes"):
            self.__dict__.pop(outdated, None)
        # In pieces: a copy of all features in float64 would double their memory.
        for rows, classes in zip(torch.split(h, CHUNK), torch.split(labels, CHUNK), strict=True):
            wide = rows.double()
            self.gram.addmm_(wide.T, wide)
            # `index_add_` by class in place of a product with one-hot labels, which are nearly all
            # zeros.
            self.cross.index_add_(1, classes, wide.T.contiguous())
            self.counts.add_(torch.bincount(classes, minlength=len(self.counts)))

    def drop_last_feature(self) -> FeatureSums:
        """Return the feature sums without the last feature."""
        return FeatureSums(self.gram[:-1, :-1], self.cross[:-1], self.counts)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the feature sums as tensors to store; of the symmetric G only the lower triangle
        by rows.
        """
        # G is symmetric: half of it is enough.
        rows, columns = torch.tril_indices(*self.gram.shape)
        return {"gram": self.gram[rows, columns], "cross": self.cross, "counts": self.counts}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> FeatureSums:
        """Restore feature sums from the tensors of `to_tensors`."""
        return FeatureSums(
            _unpack_gram_matrix(tensors["gram"], len(tensors["cross"])),
            tensors["cross"],
            tensors["counts"],
        )


def add_feature_sums_of_tasks(
    parts: Iterable[tuple[Mapping[str, Tensor], Sequence[int]]], classes: int
) -> FeatureSums:
    """Add the feature sums of several tasks.

    Args:
        parts: one pair or more, in the order of tasks: the tensors of the task's sums, and the
            column in the result for each of its classes.
        classes: columns of the result.
    """
    gram: Tensor | None = None
    cross = counts = torch.empty(0)
    for tensors, columns in parts:
        packed = tensors["gram"]
        if gram is None:
            # The result is a new object: the sums of single tasks stay unchanged.
            gram = torch.zeros_like(packed)
            cross = packed.new_zeros(len(tensors["cross"]), classes)
            counts = torch.zeros(classes, dtype=torch.int64, device=packed.device)
        # Packed, since unpacking costs more than the addition.
        gram.add_(packed)
        # Tasks may share classes, so their columns are added, not set.
        index = torch.tensor(list(columns), device=packed.device)
        cross.index_add_(1, index, tensors["cross"])
        counts.index_add_(0, index, tensors["counts"])
    assert gram is not None, "there is a task"
    return FeatureSums(_unpack_gram_matrix(gram, len(cross)), cross, counts)


def _unpack_gram_matrix(packed: Tensor, width: int) -> Tensor:
    """Restore the symmetric Gram matrix G, float64 [K, K], from its lower triangle by rows."""
    gram = packed.new_zeros(width, width)
    rows, columns = torch.tril_indices(width, width)
    gram[rows, columns] = packed
    # Mirrored, not recomputed: the restored matrix has the stored bits.
    gram[columns, rows] = packed
    return gram
