"""Predictions on held-out images: stored before the publishing transaction, and referenced in it.

All predictions of an update are one blob (`core.ingest.stored_predictions`), so that requests to the store do
not grow with the number of tasks. The blob has the predictions that a job measured. For the
parent's cells without predictions, written by older releases, the job predicts the task again and
fills them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from core.contract.jobs.job_result import LearnJobResult, MeasuredVersion, TaskPredictionsByteRange
from core.database.session import Database
from core.database.tables import Job, Model, Task, VersionTaskResult
from core.ingest.stored_predictions import (
    NEW,
    draw_predictions_encryption_key,
    read_predictions_written_by_job,
    write_encrypted_predictions,
)
from core.jobs.fence import JobClaim
from core.storage import Blobs

_FILE = "answers.safetensors"


@dataclass(frozen=True)
class PredictionBlob:
    """A stored blob of a version's predictions: digest and size in bytes."""

    sha256: str
    bytes: int


StoredCells = Mapping[tuple[MeasuredVersion, int], PredictionBlob]
"""Blob by version and task; all entries are the same blob."""


@dataclass(frozen=True)
class StoredPredictionsOfJob:
    """Predictions of a job's result after they were stored: their blob, and their cells.

    Attributes:
        cells: blob for each cell.
        path: file of the blob.
        keys: new keys of tasks that had none.
    """

    cells: StoredCells
    path: Path
    keys: Mapping[int, str]

    @property
    def blob(self) -> PredictionBlob | None:
        """The stored blob of predictions; None if no matrix cell lacks predictions."""
        return next(iter(self.cells.values()), None)


def store_missing_predictions_of_job(
    db: Database,
    blobs: Blobs,
    claim: JobClaim,
    folder: Path,
    prediction_ranges: Sequence[TaskPredictionsByteRange],
) -> StoredPredictionsOfJob:
    """Store a job's predictions on held-out images, for those matrix cells that have none yet."""
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        older = {"base": 0, "parent": job.parent_version or 0}
        query = select(VersionTaskResult.version, VersionTaskResult.task).where(
            VersionTaskResult.model_id == job.model_id,
            VersionTaskResult.version.in_(set(older.values())),
            VersionTaskResult.answers.is_not(None),
        )
        stored_cells = {(version, task) for version, task in session.execute(query)}
        keys = _read_prediction_encryption_keys_by_task(
            session, job.model_id, {file.task for file in prediction_ranges}
        )
    # Cells that have predictions keep them: a version's measurements never change.
    written = [
        part
        for part in prediction_ranges
        if (older.get(part.version), part.task) not in stored_cells
    ]
    path = folder / _FILE
    if not written:
        return StoredPredictionsOfJob({}, path, {})
    # One key for each task: its deletion makes all predictions on the task unreadable.
    predictions = read_predictions_written_by_job(folder, written)
    drawn = {task: draw_predictions_encryption_key() for _, task in predictions if task not in keys}
    keys |= drawn
    # The number of the new version is known only in the publishing transaction.
    names = {key: f"{older.get(key[0], NEW)}.{key[1]}" for key in predictions}
    write_encrypted_predictions(
        {names[key]: data for key, data in predictions.items()},
        {names[key]: keys[key[1]] for key in predictions},
        path,
    )
    blob = PredictionBlob(*blobs.put_file(path, link=True))
    return StoredPredictionsOfJob(dict.fromkeys(predictions, blob), path, drawn)


def _read_prediction_encryption_keys_by_task(
    session: Session, model_id: str, tasks: set[int]
) -> dict[int, str]:
    """Return, by task, the encryption keys with which predictions can be read."""
    query = select(Task.number, Task.answers_key).where(
        Task.model_id == model_id, Task.number.in_(tasks)
    )
    return {task: key for task, key in session.execute(query) if key is not None}


def select_cells_with_retained_images(
    session: Session, model: Model, cells: StoredCells
) -> StoredCells:
    """Return the matrix cells of tasks whose held-out images are still retained.

    Predictions are retained as long as these.
    """
    is_deleted = Task.data_deleted_at.is_not(None) | Task.held_out_deleted_at.is_not(None)
    query = select(Task.number).where(Task.model_id == model.id, is_deleted)
    tasks = set(session.scalars(query))
    return {key: stored for key, stored in cells.items() if key[1] not in tasks}


def store_prediction_encryption_keys(
    session: Session, model: Model, sealed: StoredPredictionsOfJob, cells: StoredCells
) -> None:
    """Store new encryption keys for the tasks whose predictions the cells refer to."""
    for task in sorted({task for _, task in cells} & sealed.keys.keys()):
        session.execute(
            update(Task)
            .where(Task.model_id == model.id, Task.number == task)
            .values(answers_key=sealed.keys[task])
        )


def store_predictions_in_parent_cells(
    session: Session, model: Model, parent: int, cells: StoredCells, result: LearnJobResult
) -> None:
    """Add predictions to those matrix cells of the parent that lack them, if the correct counts
    agree.
    """
    new = {cell.task: cell.correct for cell in result.results if cell.version == "new"}
    for (version, task), stored in cells.items():
        change = (result.changes or {}).get(str(task))
        if version != "parent" or change is None or task not in new:
            continue
        session.execute(
            update(VersionTaskResult)
            .where(
                *(
                    VersionTaskResult.model_id == model.id,
                    VersionTaskResult.version == parent,
                    VersionTaskResult.task == task,
                ),
                *(VersionTaskResult.answers.is_(None), VersionTaskResult.total == change.total),
                # Another count shows that these are not the predictions that were measured.
                VersionTaskResult.correct == new[task] - change.improved + change.regressed,
            )
            .values(answers=stored.sha256, answers_bytes=stored.bytes)
        )


def count_bytes_added_by_predictions(session: Session, model: Model, cells: StoredCells) -> int:
    """Return the bytes that a blob of predictions adds to the model; 0 if the model has it.

    Call this before cells refer to it.
    """
    blobs = {stored.sha256: stored.bytes for stored in cells.values()}
    query = (
        select(VersionTaskResult.answers)
        .where(VersionTaskResult.model_id == model.id, VersionTaskResult.answers.in_(blobs))
        .distinct()
    )
    stored_digests = set(session.scalars(query))
    return sum(size for sha256, size in blobs.items() if sha256 not in stored_digests)
