"""The rows of a version that a job has made, written in the transaction that publishes it.

The files of its result are stored before. What nothing names afterwards is deleted again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.edit import EditResult
from core.contract.jobs.job_result import LearnJobResult
from core.contract.manifest import StoredVersionPart
from core.database import measurements
from core.database.measurements import replace_manifest_figures_by_null
from core.database.session import Database
from core.database.states import JobAction, find_next_job_state
from core.database.tables import Job, Model, Task, Version, VersionPart
from core.edits import record
from core.errors import Invalid
from core.execution.feature_totals import StoredFeatureTotals, store_feature_totals_of_result
from core.execution.held_out_features import (
    BACKBONE,
    StoredHeldOutFeatures,
    record_held_out_feature_blobs,
    store_held_out_features_of_result,
)
from core.execution.result import JobProcessResult, ResultVersionPartFile, read_result_folder
from core.failpoints import hit_failpoint
from core.ids import new_id
from core.jobs.fence import JobClaim, lock_claimed_job
from core.lineage import lineage
from core.lineage.coverage import list_taught_tasks_with_new_task
from core.lineage.judgement import judge_version_by_gate
from core.publishing import held_out_predictions
from core.publishing.confused_pairs import ConfusedPair, find_confused_pairs_of_new_version
from core.publishing.held_out_predictions import StoredPredictionsOfJob
from core.publishing.job_measurements import NewVersionMeasurements, store_version_measurements
from core.publishing.manifest import LearningJobRows, build_version_manifest
from core.publishing.negative_flips import ProductionComparison
from core.retention import damage, references, retention
from core.storage import Blobs


@dataclass(frozen=True)
class StoredPartFile:
    """A stored part of a version: its local file, digest and size in bytes."""

    file: ResultVersionPartFile
    sha256: str
    bytes: int

    def to_manifest_part(self) -> StoredVersionPart:
        """Return the stored part as the manifest lists it."""
        return StoredVersionPart(
            name=self.file.name, type=self.file.type, sha256=self.sha256, bytes=self.bytes
        )


@dataclass(frozen=True)
class StoredJobResult:
    """A job's result after its files were stored.

    Attributes:
        folder: the result.
        parts: stored parts.
        predictions: new predictions.
        features: features of held-out images by task.
        totals: sums over all tasks, if the method has any.
        confused: pairs of classes that the version confuses.
        edit: what an edit changes besides; None for a batch.
    """

    folder: JobProcessResult[LearnJobResult]
    parts: list[StoredPartFile]
    predictions: StoredPredictionsOfJob
    features: dict[int, StoredHeldOutFeatures]
    totals: StoredFeatureTotals | None
    confused: list[ConfusedPair]
    edit: EditResult | None = None


@dataclass(frozen=True)
class PublishingTransaction:
    """Transaction that publishes a version: its session, the rows that it has locked, and its time."""

    session: Session
    model: Model
    task: Task
    job: Job
    now: float


def store_job_result_files(
    db: Database, blobs: Blobs, claim: JobClaim, result: Path
) -> StoredJobResult:
    """Store the files of a job's result: parts, predictions, features and totals."""
    result_folder = read_result_folder(result)
    # A replay buffer has a part for each task, and an update replaces only some of them.
    of_parent = _find_sound_digests_of_parent_parts(db, claim)
    stored = []
    for file in result_folder.parts:
        # With the link, this machine need not download the parts for the next task.
        blob = blobs.put_file(file.path, link=True, stored=of_parent)
        stored.append(StoredPartFile(file, *blob))
        hit_failpoint("part-stored")
    sealed = held_out_predictions.store_missing_predictions_of_job(
        db, blobs, claim, result_folder.folder, result_folder.document.answers
    )
    return StoredJobResult(
        result_folder,
        stored,
        sealed,
        store_held_out_features_of_result(blobs, result_folder),
        store_feature_totals_of_result(blobs, result_folder),
        find_confused_pairs_of_new_version(result_folder),
        record.read_edit_result(result),
    )


def _find_sound_digests_of_parent_parts(db: Database, claim: JobClaim) -> set[str]:
    """Return the digests of the parts of the version that a job continues, without damaged ones."""
    query = (
        select(VersionPart.sha256)
        .join(Version, Version.id == VersionPart.version_id)
        .where(
            Version.model_id == claim.model_id,
            Version.number == claim.parent_version,
            VersionPart.deleted_at.is_(None),
        )
    )
    with db.read() as session:
        digests = set(session.execute(query).scalars())
        return digests - damage.find_digests_marked_damaged(session, digests)


def restore_blobs_and_lock_publishing_rows(
    db: Database, session: Session, blobs: Blobs, claim: JobClaim, stored_result: StoredJobResult
) -> PublishingTransaction:
    """Lock the database rows that publishing a version changes, and return them.

    Raises:
        LeaseLost, WrongState: see `publish_or_hold_job_result`.
        Invalid: a task of the edit has no data any more.
    """
    # Until the transaction ends, no sweep deletes a blob that it is about to name.
    references.lock_blob_references_against_deletion(session)
    _restore_deleted_blobs(session, blobs, stored_result)
    job = lock_claimed_job(session, claim)
    find_next_job_state(job.state, JobAction.PUBLISH)  # raises at once if a stop was requested
    model = lineage.lock_model_row(session, job.model_id)
    task = session.get_one(Task, job.task_id, with_for_update=True, populate_existing=True)
    return PublishingTransaction(session, model, task, job, db.now(session))


def add_and_judge_version(
    publishing: PublishingTransaction,
    stored_result: StoredJobResult,
    comparison: ProductionComparison,
) -> tuple[Version, int]:
    """Add a new version to the database and judge it; return it with the bytes that it adds."""
    session, model, job = publishing.session, publishing.model, publishing.job
    size = 0
    if stored_result.edit is not None:
        size = record.store_finished_edit_outcome(
            session, model, job, stored_result.edit, model.next_version, publishing.now
        )
    version = _add_next_version(
        publishing, stored_result.folder.document, stored_result.parts, stored_result.edit
    )
    size += version.bytes_new + _store_new_version_measurements(
        session, model, version, stored_result, comparison
    )
    version.gate = judge_version_by_gate(session, model, version)
    return version, size


def _restore_deleted_blobs(session: Session, blobs: Blobs, stored_result: StoredJobResult) -> None:
    """Store a result's blobs again if they were deleted as unused meanwhile; the caller holds the
    lock on references.

    Objects that another row refers to are not deleted meanwhile. The store is asked for the others
    before any row is locked, since a slow store would keep heartbeats and requests waiting.
    """
    files = {part.sha256: part.file.path for part in stored_result.parts}
    files |= {features.sha256: features.path for features in stored_result.features.values()}
    if stored_result.totals is not None:
        files[stored_result.totals.sha256] = stored_result.totals.path
    if stored_result.predictions.blob is not None:
        files[stored_result.predictions.blob.sha256] = stored_result.predictions.path
    for sha256 in sorted(set(files) - references.find_digests_still_in_use(session, list(files))):
        # A sweep may have deleted a blob between its upload and the lock.
        if not blobs.has(sha256):
            blobs.put_file(files[sha256])
    edited = (
        []
        if stored_result.edit is None
        else record.list_digests_of_edited_files(stored_result.edit)
    )
    for sha256 in sorted(set(edited) - references.find_digests_still_in_use(session, edited)):
        if blobs.has(sha256):
            continue
        path = stored_result.folder.folder / record.STORED / sha256
        if not path.is_file():
            # A file that the edit left as it was: it went with the task's data.
            raise Invalid("A task's data was deleted while the edit was made. Send it again.")
        blobs.put_file(path)


def _store_new_version_measurements(
    session: Session,
    model: Model,
    version: Version,
    stored_result: StoredJobResult,
    comparison: ProductionComparison,
) -> int:
    """Store a new version's measurements, predictions and comparisons.

    Return the added bytes of predictions and features.
    """
    document = stored_result.folder.document
    cells = held_out_predictions.select_cells_with_retained_images(
        session, model, stored_result.predictions.cells
    )
    size = held_out_predictions.count_bytes_added_by_predictions(session, model, cells)
    measured = NewVersionMeasurements(document.results, document, cells)
    store_version_measurements(
        session, model, version, measured, _find_tasks_with_deleted_data(session, model)
    )
    held_out_predictions.store_prediction_encryption_keys(
        session, model, stored_result.predictions, cells
    )
    backbone = [
        (part.file.name, part.sha256) for part in stored_result.parts if part.file.type == BACKBONE
    ]
    size += record_held_out_feature_blobs(session, model, backbone, stored_result.features)
    held_out_predictions.store_predictions_in_parent_cells(
        session, model, version.parent or 0, cells, document
    )
    measurements.insert_measurement_rows(
        session, model.id, version.number, comparison.build_comparison_measurement_rows()
    )
    return size


def _find_tasks_with_deleted_data(session: Session, model: Model) -> set[int]:
    """Return the tasks whose data was deleted, perhaps while the job ran.

    Nothing new is stored of them.
    """
    query = select(Task.number).where(Task.model_id == model.id, Task.data_deleted_at.is_not(None))
    return set(session.execute(query).scalars())


def _add_next_version(
    publishing: PublishingTransaction,
    result: LearnJobResult,
    stored: list[StoredPartFile],
    edit: EditResult | None,
) -> Version:
    """Add a model's next version and its parts; its status is held until it is judged."""
    session, model = publishing.session, publishing.model
    task, job = publishing.task, publishing.job
    # Taken in the publishing transaction: one that fails leaves no gap.
    number = model.next_version
    model.next_version = number + 1
    start = (job.parent_version or 0) if edit is None else edit.parent
    parent = lineage.find_version_by_number(session, model, start)
    base = lineage.find_version_by_number(session, model, 0)
    assert parent is not None and base is not None, "a job starts from a version of its model"
    described = [part.to_manifest_part() for part in stored]
    tasks = (
        list_taught_tasks_with_new_task(parent.manifest, task.number)
        if edit is None
        else edit.taught
    )
    content = build_version_manifest(
        LearningJobRows(model, task, job, base), result, described, number, tasks, start
    )
    # By digest, since parts with the same bytes are one blob.
    sizes = {part.sha256: part.bytes for part in stored}
    existing = _find_digests_of_existing_parts(session, model, sizes)
    version = Version(
        id=new_id("ver"),
        model_id=model.id,
        number=number,
        parent=start,
        task_number=task.number,
        job_id=job.id,
        status="held",
        gate={"passed": False, "checks": []},
        created_at=publishing.now,
        # Figures are rows of their own (`_store_new_version_measurements`), and would be stored
        # twice.
        manifest=replace_manifest_figures_by_null(content),
        class_numbers=None if edit is None else edit.class_numbers,
        bytes=sum(part.bytes for part in stored),
        bytes_new=sum(size for sha256, size in sizes.items() if sha256 not in existing),
    )
    session.add(version)
    session.flush()  # before the rows that refer to it
    for position, part in enumerate(stored):
        session.add(
            VersionPart(
                version_id=version.id,
                name=part.file.name,
                position=position,
                type=part.file.type,
                sha256=part.sha256,
                bytes=part.bytes,
            )
        )
    return version


def _find_digests_of_existing_parts(
    session: Session, model: Model, digests: Collection[str]
) -> set[str]:
    """Return which of the digests belong to parts that a version of the model already has."""
    of_model = (
        select(VersionPart.sha256)
        .join(Version, Version.id == VersionPart.version_id)
        .where(
            Version.model_id == model.id,
            references.build_digest_expression_without_index(VersionPart.sha256).in_(digests),
            VersionPart.deleted_at.is_(None),
        )
    )
    return set(session.execute(of_model).scalars())


def delete_unused_files_of_result(
    db: Database, blobs: Blobs, stored_result: StoredJobResult, former: set[str]
) -> None:
    """Delete a result's stored objects that no row refers to: of deleted images, and totals.

    Args:
        former: files that were replaced.
    """
    stored = former | {features.sha256 for features in stored_result.features.values()}
    stored |= (
        set()
        if stored_result.edit is None
        else record.list_digests_of_files_before_edit(stored_result.edit)
    )
    stored |= {
        blob.sha256
        for blob in (stored_result.predictions.blob, stored_result.totals)
        if blob is not None
    }
    with db.read() as session:
        unused = sorted(stored - references.find_digests_still_in_use(session, sorted(stored)))
    retention.delete_unused_blobs(db, blobs, unused)
