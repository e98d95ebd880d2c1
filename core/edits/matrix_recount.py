"""Cells of the accuracy matrix by new labels, counted from the stored predictions of versions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from core.contract.edit import MatrixCellBeforeEdit
from core.database.session import Database
from core.database.tables import Task, Version, VersionTaskResult
from core.edits.rewrite import EditedLabels
from core.errors import StoredObjectDamaged
from core.ingest.stored_predictions import TaskPredictionsPlaceInBlob, read_encrypted_predictions
from core.storage import Blobs


@dataclass(frozen=True)
class _MatrixCellToRecount:
    """A cell of the accuracy matrix to recount, with its version's classes and stored
    predictions.
    """

    version: int
    names: Sequence[str]
    answers: str
    place: TaskPredictionsPlaceInBlob


def recount_matrix_cells(
    db: Database,
    blobs: Blobs,
    model_id: str,
    held_out: Mapping[int, EditedLabels],
    classes: Mapping[str, str | None],
) -> list[MatrixCellBeforeEdit]:
    """Recount all versions' correct predictions on edited tasks under the new labels.

    A version's prediction of a renamed class counts as one of its new name. Cells whose predictions
    are not stored, or are damaged, are left out.

    Args:
        held_out: task → labels of its held-out images.
        classes: former class → new name; None: it is dropped.
    """
    cells = []
    for task, edited in held_out.items():
        for cell in _read_matrix_cells_of_task(db, model_id, task):
            try:
                rows, _ = read_encrypted_predictions(
                    blobs.fetch_verified_file(cell.answers), cell.place
                )
            except (StoredObjectDamaged, ValueError):  # the damage has been recorded
                continue
            if len(rows) != len(edited.before):
                continue
            predicted = [cell.names[row] for row in rows.tolist()]
            renamed_predictions = [classes.get(name, name) for name in predicted]
            cells.append(
                count_correct_in_matrix_cell(cell.version, task, renamed_predictions, edited.after)
            )
    return cells


def count_correct_in_matrix_cell(
    version: int, task: int, predicted: Sequence[str | None], labels: Sequence[str | None]
) -> MatrixCellBeforeEdit:
    """Count a version's correct predictions by class; images with the label None are left out."""
    per_class: dict[str, list[int]] = {}
    for prediction, label in zip(predicted, labels, strict=True):
        if label is not None:
            counts = per_class.setdefault(label, [0, 0])
            counts[0] += prediction == label
            counts[1] += 1
    return MatrixCellBeforeEdit(
        version=version,
        task=task,
        correct=sum(counts[0] for counts in per_class.values()),
        total=sum(counts[1] for counts in per_class.values()),
        per_class=dict(sorted(per_class.items())),
    )


def _read_matrix_cells_of_task(
    db: Database, model_id: str, task: int
) -> list[_MatrixCellToRecount]:
    query = (
        select(
            VersionTaskResult.version, VersionTaskResult.answers, Task.answers_key, Version.manifest
        )
        .join(
            Task,
            (Task.model_id == VersionTaskResult.model_id) & (Task.number == VersionTaskResult.task),
        )
        .join(
            Version,
            (Version.model_id == VersionTaskResult.model_id)
            & (Version.number == VersionTaskResult.version),
        )
        .where(
            VersionTaskResult.model_id == model_id,
            VersionTaskResult.task == task,
            VersionTaskResult.answers.is_not(None),
        )
        .order_by(VersionTaskResult.version)
    )
    with db.read() as session:
        return [
            _MatrixCellToRecount(
                version,
                manifest.classes or [],
                digest,
                TaskPredictionsPlaceInBlob(version, task, key),
            )
            for version, digest, key, manifest in session.execute(query)
            if digest is not None
        ]
