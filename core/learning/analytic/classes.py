"""Sums and retained features of a task whose classes are merged or dropped, without its images.

Sums of merged classes add up: they are those of a task that had one class from the beginning, but
for rounding. G is not stored by class, so what a dropped class added to it is estimated: its mean
is known, and its scatter is taken for its share of the scatter within all classes of the task. The
shared covariance Σ of a task stays the same, and so does all that the discriminant says of other
classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from core.contract.manifest import ORDER, REST
from core.learning.analytic.rows import FIELDS, LabelledFeatureRows
from core.learning.analytic.sums import FeatureSums
from core.learning.class_map import DROPPED, ClassMap

SUMS = ("gram", "cross", "counts", "rows")
"""Tensors of a task's statistics: `FeatureSums`, and the numbers of its classes."""


def renumber_classes_in_sums(
    tensors: Mapping[str, Tensor], tasks: Sequence[int], classes: ClassMap
) -> dict[str, Tensor]:
    """Renumber the classes in the feature sums of several tasks after classes were merged or
    dropped.

    Args:
        tensors: sums of all tasks, `<task>.<name>`.
        tasks: their numbers.
        classes: the patch.
    """
    patched: dict[str, Tensor] = {}
    for task in tasks:
        stored = {name: tensors[f"{task}.{name}"] for name in SUMS}
        renumbered = renumber_classes_in_task_sums(
            FeatureSums.from_tensors(stored), stored["rows"], classes
        )
        if renumbered is not None:
            sums, rows = renumbered
            named = {**sums.to_tensors(), "rows": rows}
            patched |= {f"{task}.{name}": tensor for name, tensor in named.items()}
    return patched


def renumber_classes_in_task_sums(
    sums: FeatureSums, rows: Tensor, classes: ClassMap
) -> tuple[FeatureSums, Tensor] | None:
    """Renumber the classes in one task's feature sums after a merge or drop; also return the new
    numbers.

    Return None if no class of the task is left.

    Args:
        sums: sums of the task.
        rows: numbers of its classes, int64 [C].
        classes: the patch.
    """
    numbers = classes.renumber_labels(rows)
    retained_indices = (numbers != DROPPED).nonzero().squeeze(1)
    if not retained_indices.numel():
        return None
    if retained_indices.numel() < rows.numel():
        sums = drop_classes_from_feature_sums(sums, retained_indices)
    new, columns = numbers[retained_indices].unique(return_inverse=True)  # type: ignore[no-untyped-call]
    cross = sums.cross.new_zeros(len(sums.cross), len(new)).index_add_(1, columns, sums.cross)
    counts = sums.counts.new_zeros(len(new)).index_add_(0, columns, sums.counts)
    return FeatureSums(sums.gram, cross, counts), new


def drop_classes_from_feature_sums(sums: FeatureSums, retained_indices: Tensor) -> FeatureSums:
    """Return feature sums without dropped classes, whose share of the within-class scatter is
    estimated.
    """
    cross, counts = sums.cross[:, retained_indices], sums.counts[retained_indices]
    remaining = FeatureSums(sums.gram, cross, counts)
    # The scatter within classes, in proportion to the degrees of freedom that remain: Σ is kept.
    share = _count_scatter_degrees_of_freedom(remaining) / max(
        _count_scatter_degrees_of_freedom(sums), 1
    )
    gram = share * sums.scatter_within_classes + cross @ remaining.class_means
    # Rounding leaves the matrix slightly asymmetric.
    return FeatureSums((gram + gram.T) / 2, cross, counts)


def renumber_stored_features(
    tensors: Mapping[str, Tensor], task: int, classes: ClassMap
) -> LabelledFeatureRows | None:
    """Renumber the classes of a task's stored features after classes were merged or dropped.

    Return None if none are retained.

    Args:
        tensors: features of all tasks, `<task>.<name>` and `<task>.rest.<name>`.
        task: number of the task.
        classes: the patch.
    """
    prefixes = [f"{task}.", f"{task}.{REST}."]
    parts = [
        LabelledFeatureRows(*(tensors[f"{prefix}{name}"] for name in FIELDS))
        for prefix in prefixes
        if f"{prefix}{FIELDS[0]}" in tensors
    ]
    if not parts:
        return None
    rows = LabelledFeatureRows.concatenate_rows(parts)
    order = tensors.get(f"{task}.{REST}.{ORDER}")
    # Examples and the rest were stored apart; this restores the order of the images.
    if order is not None:
        rows = rows.select_rows(order.argsort())
    numbers = classes.renumber_labels(rows.classes)
    retained_mask = numbers != DROPPED
    return LabelledFeatureRows(rows.features, numbers, rows.keys).select_rows(retained_mask)


def _count_scatter_degrees_of_freedom(sums: FeatureSums) -> int:
    """Return the degrees of freedom of the within-class scatter: examples minus classes."""
    return sums.example_count - int((sums.counts > 0).sum())
