"""What one row of the accuracy matrix says, once each cell knows the best accuracy before it.

A version's row does not change when later ones are published. So its figures are stored with it, and those of a whole
line are read, where `core.matrix` would compute them from all cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from core.matrix import Cells, Row, Stages, mean


class Cell(NamedTuple):
    """Counts of one task; `best`: best accuracy of the version's ancestors since they learned it, None where
    none has."""

    correct: int
    total: int
    best: float | None = None

    @property
    def accuracy(self) -> float | None:
        """In [0, 1]; None without images."""
        return self.correct / self.total if self.total else None

    def best_with_own(self) -> float | None:
        """What `best` is of the next version's cell, if this version was taught the task."""
        return max((a for a in (self.best, self.accuracy) if a is not None), default=None)


@dataclass(frozen=True)
class RowFigures:
    """ACC, the primary accuracy and F of one version, as in `core.matrix.DEFINITIONS`."""

    acc: float | None
    last: float | None
    forgetting: float | None


def row_figures(tasks: Sequence[int], cells: Mapping[int, Cell], scenario: str) -> RowFigures:
    """The figures of a version.

    Args:
        tasks: that it was taught, in order.
        cells: its row, by task.
        scenario: data, task or class: chooses the primary accuracy.
    """
    row = [cells[task] for task in tasks if task in cells]
    acc = mean(cell.accuracy for cell in row)
    total = sum(cell.total for cell in row)
    pooled = sum(cell.correct for cell in row) / total if total else None
    lost = (None if c.best is None or c.accuracy is None else c.best - c.accuracy for c in row)
    return RowFigures(acc, acc if scenario == "task" else pooled, mean(lost))


class StoredStages(Stages):
    """As `Stages`, from the last version's row, what each version before it has stored, and the first cells
    of each task.

    Args:
        first: cells of versions before they were taught the task, and of those that learned it.
        row: the cells of `version`, by task.
        stored: version → (primary accuracy, forgetting).
    """

    def __init__(
        self,
        rows: Sequence[Row],
        first: Cells,
        row: Mapping[int, Cell],
        stored: Mapping[int, tuple[float | None, float | None]],
        version: int,
        scenario: str,
    ) -> None:
        own = {(version, task): (cell.correct, cell.total) for task, cell in row.items()}
        super().__init__(rows, {**first, **own}, version, scenario)
        self._stored = stored
        self._now = {task: cell.accuracy for task, cell in row.items()}
        self._best = {task: cell.best for task, cell in row.items() if cell.best is not None}
        self._best_ever = self._ever(first)

    def primary(self, stage: int) -> float | None:
        """As stored; of the last version computed."""
        return super().primary(stage) if stage == self.last else self._of(stage)[0]

    def forgetting(self, stage: int, *, literal: bool = False) -> float | None:
        """As stored; of the last version computed."""
        return super().forgetting(stage, literal=literal) if stage == self.last else self._of(stage)[1]

    def forgotten(self, task: int, stage: int, *, literal: bool = False) -> float | None:
        """Of the last stage alone: f_j^k from the best accuracy that the version's cell knows."""
        best = (self._best_ever if literal else self._best).get(task)
        now = self._now.get(task) if stage == self.last else None
        return None if best is None or now is None else best - now

    def _of(self, stage: int) -> tuple[float | None, float | None]:
        return self._stored.get(self.line[stage].version, (None, None))

    def _ever(self, first: Cells) -> dict[int, float]:
        """Task → the best accuracy on it, also of versions that were not taught it yet; not of the base."""
        stage_of = {row.version: stage for stage, row in enumerate(self.line)}
        found = dict(self._best)
        for (version, task), (correct, total) in first.items():
            stage = stage_of.get(version, 0)
            if total and 1 <= stage < self.learned.get(task, 0):
                found[task] = max(found.get(task, 0.0), correct / total)
        return found
