"""A version's accuracy on each task, named by the task's number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from perennial.cli.output import NOTHING

if TYPE_CHECKING:
    from perennial import Perennial
    from perennial.types import Version

UNMEASURED = f"{NOTHING}: not measured, since the task has no held-out images."


def read_accuracies(client: Perennial, model: str, version: Version) -> dict[int, float | None]:
    """Return the accuracy in [0, 1] of a version on each task that it was taught, by task number.

    None: not measured. A row of the accuracy matrix has a cell for each task that some version
    learned: rejected tasks have none, discarded ones may have one. Only the columns tell which.
    """
    # One row alone: the matrix of a long lineage has many thousands of cells.
    metrics = client.metrics.retrieve(
        model, version.number, first=version.number, last=version.number
    )
    measured: dict[int, float | None] = {}
    for row, cells in zip(metrics.rows, metrics.accuracy_matrix, strict=True):
        if row.version == version.number:
            measured = {
                column.task: cell for column, cell in zip(metrics.columns, cells, strict=True)
            }
    return {task: measured.get(task) for task in version.tasks}


def format_accuracies_in_words(accuracies: Mapping[int, float | None]) -> str:
    """Return accuracies in words, such as "task 1 0.944, task 4 –"; empty without a task."""
    cells = (
        f"task {task} {NOTHING if right is None else f'{right:.3f}'}"
        for task, right in accuracies.items()
    )
    return ", ".join(cells)


def explain_unmeasured_sign(accuracies: Mapping[int, float | None]) -> Iterator[str]:
    """Yield the meaning of the sign for an accuracy that was not measured, if there is one."""
    if None in accuracies.values():
        yield UNMEASURED
