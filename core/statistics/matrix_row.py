"""Figures of a single row of the accuracy matrix, from cells that store the best accuracy so far.

A version's row does not change when later versions are published. Its figures are therefore stored
with it, and those of a whole lineage are read instead of computed from all cells as in
`core.statistics.matrix`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from core.statistics.matrix import (
    AccuracyMatrixVersion,
    Cells,
    LineageAccuracyMatrix,
    average_defined_values,
)


class MatrixCellCounts(NamedTuple):
    """Counts of correct predictions in one cell of the accuracy matrix, with the best earlier
    accuracy.

    Attributes:
        correct: images classified correctly.
        total: images measured.
        best: best accuracy of the version's ancestors since they learned the task, or None.
    """

    correct: int
    total: int
    best: float | None = None

    @property
    def accuracy(self) -> float | None:
        """The cell's accuracy in [0, 1]; None without images."""
        return self.correct / self.total if self.total else None

    def get_best_accuracy_up_to_own_version(self) -> float | None:
        """Return the best accuracy on the task up to and including this cell's version."""
        return max((a for a in (self.best, self.accuracy) if a is not None), default=None)


@dataclass(frozen=True)
class VersionAccuracyFigures:
    """Stored accuracy figures of one version: mean accuracy, primary accuracy and forgetting.

    `images`: held-out images that they rest on.
    """

    acc: float | None
    last: float | None
    forgetting: float | None
    images: int


def compute_version_accuracy_figures(
    tasks: Sequence[int], cells: Mapping[int, MatrixCellCounts], scenario: str
) -> VersionAccuracyFigures:
    """Compute the accuracy figures of a version from its row of the accuracy matrix.

    Args:
        tasks: tasks that it was taught, in order.
        cells: its row, by task.
        scenario: data, task or class; determines the primary accuracy.
    """
    row = [cells[task] for task in tasks if task in cells]
    acc = average_defined_values(cell.accuracy for cell in row)
    total = sum(cell.total for cell in row)
    pooled = sum(cell.correct for cell in row) / total if total else None
    forgetting = (
        None if c.best is None or c.accuracy is None else c.best - c.accuracy for c in row
    )
    return VersionAccuracyFigures(
        acc, acc if scenario == "task" else pooled, average_defined_values(forgetting), total
    )


class LineageMatrixFromStoredFigures(LineageAccuracyMatrix):
    """An accuracy matrix that needs only the last version's row, and stored figures of earlier
    versions.

    Args:
        rows: versions, among them `version` and its ancestors.
        first: for each task, cells of versions before they were taught it, and of those that
            learned it.
        row: the cells of `version`, by task.
        stored: version → (primary accuracy, forgetting).
        version: number of the last version.
        scenario: data, task or class.
    """

    def __init__(
        self,
        rows: Sequence[AccuracyMatrixVersion],
        first: Cells,
        row: Mapping[int, MatrixCellCounts],
        stored: Mapping[int, tuple[float | None, float | None]],
        version: int,
        scenario: str,
    ) -> None:
        row_counts = {(version, task): (cell.correct, cell.total) for task, cell in row.items()}
        super().__init__(rows, {**first, **row_counts}, version, scenario)
        self._stored = stored
        self._now = {task: cell.accuracy for task, cell in row.items()}
        self._best = {task: cell.best for task, cell in row.items() if cell.best is not None}
        self._best_ever = self._find_best_accuracies(first)

    def compute_primary_accuracy(self, stage: int) -> float | None:
        """Return the stored primary accuracy of a version; that of the last version is computed."""
        return (
            super().compute_primary_accuracy(stage)
            if stage == self.last
            else self._get_stored_accuracy_and_forgetting(stage)[0]
        )

    def compute_mean_forgetting(self, stage: int, *, literal: bool = False) -> float | None:
        """Return the stored mean forgetting of a version; that of the last version is computed."""
        return (
            super().compute_mean_forgetting(stage, literal=literal)
            if stage == self.last
            else self._get_stored_accuracy_and_forgetting(stage)[1]
        )

    def compute_task_forgetting(
        self, task: int, stage: int, *, literal: bool = False
    ) -> float | None:
        """Compute a task's forgetting in the last version, from its best earlier accuracy; else
        None.
        """
        best = (self._best_ever if literal else self._best).get(task)
        now = self._now.get(task) if stage == self.last else None
        return None if best is None or now is None else best - now

    def _get_stored_accuracy_and_forgetting(self, stage: int) -> tuple[float | None, float | None]:
        return self._stored.get(self.line[stage].version, (None, None))

    def _find_best_accuracies(self, first: Cells) -> dict[int, float]:
        """Find the best accuracy on each task over all versions of the lineage but the base."""
        stage_of = {row.version: stage for stage, row in enumerate(self.line)}
        best = dict(self._best)
        for (version, task), (correct, total) in first.items():
            stage = stage_of.get(version, 0)
            # Stage 0 is the base, which is no version of the lineage (see `forgetting_literal`).
            if total and 1 <= stage < self.learned.get(task, 0):
                best[task] = max(best.get(task, 0.0), correct / total)
        return best
