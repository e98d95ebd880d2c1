"""Cells of the accuracy matrix whose held-out labels an edit has changed since."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.responses.versions.metrics import CellMark
from core.database.tables import Edit


@dataclass(frozen=True)
class EditedLabels:
    """An edit that changed held-out labels or images.

    Attributes:
        version: the version that it made; earlier ones were measured by the former labels.
        tasks: the tasks.
        counted_again: cells (version, task) that were counted by the new labels.
    """

    version: int
    tasks: tuple[int, ...]
    counted_again: frozenset[tuple[int, int]]


def read_edited_labels(session: Session, model_id: str) -> list[EditedLabels]:
    """Return the edits of a model that stand and changed held-out labels, oldest first."""
    query = (
        select(Edit.version, Edit.journal)
        .where(Edit.model_id == model_id, Edit.version.is_not(None), Edit.undone_at.is_(None))
        .order_by(Edit.number)
    )
    return [
        EditedLabels(
            version or 0,
            tuple(journal.measured_otherwise),
            frozenset((cell.version, cell.task) for cell in journal.cells),
        )
        for version, journal in session.execute(query)
        if journal is not None and journal.measured_otherwise
    ]


def mark_cells(
    edits: Collection[EditedLabels], cells: Collection[tuple[int, int]]
) -> list[CellMark]:
    """Return the marks of those cells (version, task) whose labels were edited, in their order."""
    marks: list[CellMark] = []
    for version, task in cells:
        later = [each for each in edits if version < each.version and task in each.tasks]
        if later:
            # Counted by present labels only if every edit since could count it again.
            again = all((version, task) in each.counted_again for each in later)
            marks.append(
                {"version": version, "task": task, "mark": "labels edited", "counted_again": again}
            )
    return marks
