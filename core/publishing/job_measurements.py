"""Storage of a job's measurements: cells of the accuracy matrix, and figures."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.figures import VersionFigures
from core.contract.jobs.job_result import MeasuredMatrixCell
from core.database import measurements
from core.database.bulk import insert_rows
from core.database.tables import Model, Version, VersionTaskResult
from core.lineage.accuracy_row import (
    find_best_earlier_accuracies,
    store_matrix_row_accuracy_summary,
)
from core.lineage.lineage import find_version_by_number
from core.publishing.held_out_predictions import StoredCells
from core.statistics.matrix_row import MatrixCellCounts


@dataclass(frozen=True)
class NewVersionMeasurements:
    """Measurements that a job made: of its new version, and of earlier versions on its task.

    Attributes:
        cells: measured cells of the accuracy matrix.
        figures: figures of the new version.
        predictions: stored predictions of the cells.
    """

    cells: Iterable[MeasuredMatrixCell]
    figures: VersionFigures
    predictions: StoredCells


def store_version_measurements(
    session: Session,
    model: Model,
    version: Version,
    new_measurements: NewVersionMeasurements,
    deleted: Collection[int],
) -> None:
    """Store the measurements of a new version, and those of earlier versions on its task.

    Existing cells stay.

    Args:
        deleted: tasks whose data was deleted, perhaps while the job ran; nothing new is stored of
            them.
    """
    parent = find_version_by_number(session, model, version.parent or 0)
    assert parent is not None, "a job starts from a version of its model"
    measured = {
        (cell.version, cell.task): cell
        for cell in new_measurements.cells
        if cell.task not in deleted
    }
    new_cells = [
        cell for (measured_version, _), cell in measured.items() if measured_version == "new"
    ]
    best = find_best_earlier_accuracies(session, parent, [cell.task for cell in new_cells])
    cells = {
        cell.task: MatrixCellCounts(cell.correct_count, cell.total, best.get(cell.task))
        for cell in new_cells
    }
    rows = [
        _build_matrix_cell_row(
            model, version.number, cell, best.get(cell.task), new_measurements.predictions
        )
        for cell in new_cells
    ]
    rows += _build_missing_cells_of_earlier_versions(
        session,
        model,
        {"base": 0, "parent": parent.number},
        measured.values(),
        new_measurements.predictions,
    )
    insert_rows(session, VersionTaskResult, rows)
    store_matrix_row_accuracy_summary(session, version, cells, model.scenario)
    measurements.insert_measurement_rows(
        session,
        model.id,
        version.number,
        measurements.build_measurement_rows(new_measurements.figures, without=deleted),
    )


def _build_missing_cells_of_earlier_versions(
    session: Session,
    model: Model,
    numbers: dict[str, int],
    measured: Collection[MeasuredMatrixCell],
    predictions: StoredCells,
) -> list[dict[str, object]]:
    """Build the accuracy-matrix cells of earlier versions that do not exist yet."""
    older: dict[tuple[int, int], MeasuredMatrixCell] = {}
    for cell in measured:
        if cell.version in numbers:  # the parent may be version 0
            older.setdefault((numbers[cell.version], cell.task), cell)
    query = select(VersionTaskResult.version, VersionTaskResult.task).where(
        VersionTaskResult.model_id == model.id,
        VersionTaskResult.version.in_({version for version, _ in older}),
        VersionTaskResult.task.in_({task for _, task in older}),
    )
    # A version is immutable, and so are its measurements: the first one stands.
    existing = {(version, task) for version, task in session.execute(query)}
    return [
        # These versions were not taught the task, so there is no best accuracy since then.
        _build_matrix_cell_row(model, key[0], cell, None, predictions)
        for key, cell in older.items()
        if key not in existing
    ]


def _build_matrix_cell_row(
    model: Model,
    version: int,
    cell: MeasuredMatrixCell,
    best: float | None,
    predictions: StoredCells,
) -> dict[str, object]:
    """Build the database row of a cell of the accuracy matrix."""
    stored = predictions.get((cell.version, cell.task))
    return {
        "model_id": model.id,
        "version": version,
        "task": cell.task,
        "correct": cell.correct_count,
        "total": cell.total,
        "per_class": cell.per_class,
        "best": best,
        "answers": None if stored is None else stored.sha256,
        "answers_bytes": None if stored is None else stored.bytes,
    }
