"""A version's row of the accuracy matrix: read it, and store its figures."""

from collections.abc import Iterable, Mapping

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from core.database import measurements
from core.database.measurements import ALL_TASKS, ROW, MeasurementRow
from core.database.tables import Version, VersionTaskResult
from core.lineage.coverage import list_taught_tasks
from core.statistics.matrix_row import MatrixCellCounts, compute_version_accuracy_figures

_ROW = select(
    VersionTaskResult.task,
    VersionTaskResult.correct,
    VersionTaskResult.total,
    VersionTaskResult.best,
).where(
    VersionTaskResult.model_id == bindparam("model"),
    VersionTaskResult.version == bindparam("version"),
)


def read_accuracy_matrix_row(
    session: Session, model_id: str, version: int
) -> dict[int, MatrixCellCounts]:
    """Read a version's row of the accuracy matrix: cells by task."""
    # Without the ORM and with a query built once: a verdict reads thousands of cells.
    cells = session.connection().execute(_ROW, {"model": model_id, "version": version}).all()
    return {task: MatrixCellCounts(correct, total, best) for task, correct, total, best in cells}


def find_best_earlier_accuracies(
    session: Session, version: Version, tasks: Iterable[int]
) -> dict[int, float | None]:
    """Find the best accuracy on each task since it was learned, up to and including a version.

    That is the best accuracy in [0, 1] on a task since it was learned, up to and including
    `version`. Ancestors are read only for tasks on which `version` was not measured itself.
    """
    best_by_task: dict[int, float | None] = {}
    ancestor: Version | None = version
    remaining = set(tasks)
    while ancestor is not None and (
        remaining := remaining & set(list_taught_tasks(ancestor.manifest))
    ):
        row = read_accuracy_matrix_row(session, ancestor.model_id, ancestor.number)
        best_by_task |= {
            task: row[task].get_best_accuracy_up_to_own_version() for task in remaining & row.keys()
        }
        # A cell carries the best value before it, so the newest one suffices.
        remaining -= row.keys()
        parent = select(Version).where(
            Version.model_id == ancestor.model_id, Version.number == ancestor.parent
        )
        ancestor = session.scalars(parent).one_or_none() if remaining else None
    return best_by_task


def store_matrix_row_accuracy_summary(
    session: Session, version: Version, cells: Mapping[int, MatrixCellCounts], scenario: str
) -> None:
    """Store the accuracy figures of a version's matrix row, for the metrics of its descendants."""
    figures = compute_version_accuracy_figures(list_taught_tasks(version.manifest), cells, scenario)
    detail = {"last": figures.last, "forgetting": figures.forgetting, "images": figures.images}
    measurements.insert_measurement_rows(
        session,
        version.model_id,
        version.number,
        [MeasurementRow(ROW, ALL_TASKS, figures.acc, detail)],
    )
