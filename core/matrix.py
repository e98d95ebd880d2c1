"""The accuracy matrix R and its summary figures.

`R[v][j]` is the accuracy of version v on the held-out part of task j. Figures go along the ancestors of
one version: stages 0 (the base) … T, where stage i learned task t_i. Backward and
forward transfer follow Lopez-Paz and Ranzato 2017, forgetting Chaudhry et al. 2018; sums go only over defined
entries, undefined is None and never 0. Stored are counts; accuracies are derived.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Cells = Mapping[tuple[int, int], tuple[int, int]]
"""(version, task) → (correct, total). A missing cell, or a total of 0, is undefined."""

DEFINITIONS = {
    "accuracy_matrix": "Row: version. Column: task. Share of the task's held-out images that the version "
    "classifies correctly; null where the task is not among its ancestors, it cannot answer, or it was not "
    "measured.",
    "acc": "ACC: mean over the learned tasks of the version's accuracy.",
    "last": "LA: the version's accuracy over all held-out images of the learned tasks together (task "
    "scenario: the mean over tasks).",
    "average_incremental": "AA: mean of `last` over the versions from the first to this one.",
    "bwt": "Backward transfer: mean over earlier tasks of accuracy now minus accuracy when learned.",
    "fwt": "Forward transfer: mean over tasks from the second on of accuracy just before learning it minus "
    "accuracy of version 0; null in the class scenario.",
    "forgetting": "Mean over earlier tasks of the best accuracy since it was learned minus accuracy now; "
    "negative means gain.",
    "learning_accuracy": "Mean over tasks of the accuracy right after learning it.",
    "update_norm": "Per version, the Euclidean norm of the change of the shared weights; null if unknown.",
}


@dataclass(frozen=True)
class Row:
    """A version: its number, the task it learned (None for 0) and its parent (None for 0)."""

    version: int
    task: int | None
    parent: int | None


def accuracy_matrix(rows: Sequence[Row], columns: Sequence[int], cells: Cells) -> list[list[float | None]]:
    """One list per row, one accuracy in [0, 1] or None per column."""
    return [[_accuracy(cells, row.version, task) for task in columns] for row in rows]


def path(rows: Sequence[Row], version: int) -> list[Row]:
    """The rows from version 0 to `version` along the parents.

    Raises:
        KeyError: `version`, or one of its ancestors, is not among the rows.
    """
    by_version = {row.version: row for row in rows}
    line = [by_version[version]]
    while (parent := line[-1].parent) is not None:
        line.append(by_version[parent])
    return line[::-1]


def summary(
    rows: Sequence[Row],
    cells: Cells,
    version: int,
    scenario: str,
    update_norms: Mapping[int, float | None] | None = None,
) -> dict[str, float | list[float | None] | None]:
    """The figures of `version`, along its ancestors.

    Args:
        scenario: data, task or class: chooses the primary accuracy, and whether FWT is defined.
        update_norms: version → norm of its update.

    Returns:
        acc, last, average_incremental, bwt, fwt, forgetting, learning_accuracy (see `DEFINITIONS`) and
        update_norm, one entry per stage from 1.
    """
    stages = path(rows, version)
    learned: dict[int, int] = {}  # task → first stage that learned it
    for stage, row in enumerate(stages):
        if row.task is not None:
            learned.setdefault(row.task, stage)
    last = len(stages) - 1

    def r(stage: int, task: int) -> float | None:
        return _accuracy(cells, stages[stage].version, task)

    def seen(stage: int) -> list[int]:
        return [task for task, at in learned.items() if at <= stage]

    def mean_accuracy(stage: int) -> float | None:
        return _mean([r(stage, task) for task in seen(stage)])

    def primary(stage: int) -> float | None:
        if scenario == "task":
            return mean_accuracy(stage)
        counts = [cells.get((stages[stage].version, task), (0, 0)) for task in seen(stage)]
        total = sum(n for _, n in counts)
        return sum(correct for correct, _ in counts) / total if total else None

    def lost(task: int) -> float | None:
        best = [a for stage in range(learned[task], last) if (a := r(stage, task)) is not None]
        return _difference(max(best) if best else None, r(last, task))

    earlier = [task for task, at in learned.items() if at < last]
    later = [task for task, at in learned.items() if at >= 2]
    ahead = [] if scenario == "class" else later
    norms = update_norms or {}
    return {
        "acc": mean_accuracy(last),
        "last": primary(last),
        "average_incremental": _mean([primary(stage) for stage in range(1, last + 1)]),
        "bwt": _mean([_difference(r(last, task), r(learned[task], task)) for task in earlier]),
        "fwt": _mean([_difference(r(learned[task] - 1, task), r(0, task)) for task in ahead]),
        "forgetting": _mean([lost(task) for task in earlier]),
        "learning_accuracy": _mean([r(at, task) for task, at in learned.items()]),
        "update_norm": [norms.get(row.version) for row in stages[1:]],
    }


def _accuracy(cells: Cells, version: int, task: int) -> float | None:
    correct, total = cells.get((version, task), (0, 0))
    return correct / total if total else None


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None
