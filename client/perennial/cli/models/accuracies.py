"""A version's accuracy on each task, named by the task's number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from perennial.cli.output import NOTHING
from perennial.text import format_count_with_noun

if TYPE_CHECKING:
    from perennial import Perennial
    from perennial.types import Version

UNMEASURED = f"{NOTHING}: not measured, since the task has no held-out images."


class MeasuredAccuracy(NamedTuple):
    """An accuracy in [0, 1], and the number of held-out images that it rests on; None: not
    measured."""

    value: float | None
    images: int

    def __str__(self) -> str:
        """Return the accuracy with its images, such as 0.944 (18 images)."""
        if self.value is None:
            return NOTHING
        return f"{self.value:.3f} ({format_count_with_noun(self.images, 'image')})"


def fetch_task_accuracies_of_version(
    client: Perennial, model: str, version: Version
) -> dict[int, MeasuredAccuracy]:
    """Return the accuracy of a version on each task that it was taught, by task number.
    A row of the accuracy matrix has a cell for each task that some version
       learned: rejected tasks have none, discarded ones may have one. Only the columns tell which.
    """
    # One row alone: the matrix of a long lineage has many thousands of cells.
    metrics = client.metrics.retrieve(
        model, version.number, first=version.number, last=version.number
    )
    measured: dict[int, MeasuredAccuracy] = {}
    for row, cells in zip(metrics.rows, metrics.accuracy_matrix, strict=True):
        if row.version == version.number:
            measured = {
                column.task: MeasuredAccuracy(cell, column.n)
                for column, cell in zip(metrics.columns, cells, strict=True)
            }
    return {task: measured.get(task, MeasuredAccuracy(None, 0)) for task in version.tasks}


def format_accuracies_in_words(accuracies: Mapping[int, MeasuredAccuracy]) -> str:
    """Format accuracies in words, such as "task 1 0.944 (18 images), task 4 –"; empty without a
    task.
    """
    return ", ".join(f"task {task} {accuracy}" for task, accuracy in accuracies.items())


def explain_sign_of_unmeasured_accuracy(
    accuracies: Mapping[int, MeasuredAccuracy],
) -> Iterator[str]:
    """Explain the sign that stands for an accuracy that was not measured, if the table has it."""
    if any(accuracy.value is None for accuracy in accuracies.values()):
        yield UNMEASURED
