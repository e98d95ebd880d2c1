"""Publishing of a measurement: the cell of a version that came with its model, and its figures."""

import json
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from core.contract.base import ADOPTED_VERSION
from core.contract.figures import VersionFigures
from core.contract.jobs.measure_job import MeasureResult
from core.database.jobs import change_job_state
from core.database.session import Database
from core.database.states import JobAction, JobState, find_next_job_state
from core.database.tables import Job, Task, VersionTaskResult
from core.jobs.fence import JobClaim, lock_claimed_job
from core.lineage import lineage
from core.publishing import held_out_predictions
from core.publishing.job_measurements import NewVersionMeasurements, store_version_measurements
from core.retention import references, retention
from core.retention.damage import DatabaseDamageMarks
from core.storage import Blobs, ObjectStorage
from core.usage import stored_bytes


@dataclass(frozen=True)
class JobVersionStatus:
    """Number and status of the version that a job has made or measured."""

    number: int
    status: str


_DONE = JobVersionStatus(ADOPTED_VERSION, "measured")


def store_measurement_and_end_job(
    db: Database, store: ObjectStorage, claim: JobClaim, folder: Path, cache: Path | None = None
) -> JobVersionStatus:
    """Store the result of a claimed measuring job, and end the job. Repeating the call changes
    nothing.

    Args:
        folder: folder of the result.
        cache: the worker's folder for copies of stored blobs.

    Raises:
        LeaseLost: the job belongs to another claim; nothing was stored.
        WrongState: a stop was requested meanwhile; nothing was stored.
        ValueError: the result is incomplete, which is a fault of the learning code.
    """
    # An earlier call may have committed without its caller learning of it, as in an outage.
    with db.read() as session:
        if session.scalar(select(Job.state).where(Job.id == claim.job_id)) == JobState.SUCCEEDED:
            return _DONE
    result = MeasureResult.from_json(json.loads((folder / "result.json").read_text()))
    blobs = Blobs(store, cache or folder / "cache", marks=DatabaseDamageMarks(db))
    sealed = held_out_predictions.store_missing_predictions_of_job(
        db, blobs, claim, folder, result.answers
    )
    with db.write() as session:
        # Until the transaction ends, no sweep deletes a blob that it is about to name.
        references.lock_blob_references_against_deletion(session)
        if sealed.blob is not None and not blobs.has(sealed.blob.sha256):
            blobs.put_file(sealed.path)
        job = lock_claimed_job(session, claim)
        find_next_job_state(job.state, JobAction.FINISH)  # raises at once if a stop was requested
        model = lineage.lock_model_row(session, job.model_id)
        mine = Task.model_id == model.id, Task.number == job.task_number
        task = session.scalars(
            select(Task).where(*mine).with_for_update().execution_options(populate_existing=True)
        ).one()
        version = lineage.find_version_by_number(session, model, ADOPTED_VERSION)
        assert version is not None, "the version came with the model"
        now = db.now(session)
        cells = held_out_predictions.select_cells_with_retained_images(session, model, sealed.cells)
        size = held_out_predictions.count_bytes_added_by_predictions(session, model, cells)
        deleted = {task.number} if task.data_deleted_at is not None else set()
        measured = NewVersionMeasurements(
            result.results, VersionFigures(calibration=result.calibration), cells
        )
        # After an attempt whose end was lost, the row is there already.
        if session.get(VersionTaskResult, (model.id, version.number, task.number)) is None:
            store_version_measurements(session, model, version, measured, deleted)
            held_out_predictions.store_prediction_encryption_keys(session, model, sealed, cells)
        retention.mark_unneeded_task_files(model, task, published=True, now=now)
        change_job_state(session, job, JobAction.FINISH, now)
        session.flush()
        # At the end of the transaction, since it locks the owner's row.
        stored_bytes.add_stored_bytes(session, job.owner_id, size)
        task_id = task.id
    retention.delete_blobs_of_deleted_task_files(db, Blobs(store, Path()), task_id)
    return _DONE
