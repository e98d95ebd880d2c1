"""Comparison of a new version with production, image by image, if its gate needs it.

Production is usually the parent of the version, and the job itself has compared the two. If a
person moved production elsewhere, predictions of both are read from the store, on those tasks for
which they are stored.
"""

from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.features import AncestorFeatureComparison
from core.contract.jobs.job_result import LearnJobResult
from core.contract.losses import GateComparisons
from core.contract.manifest import Manifest
from core.database.kinds import JobKind
from core.database.label_names import order_task_labels_by_dataset_number
from core.database.measurements import ALL_TASKS, FEATURES, LOSSES, NEGATIVE_FLIPS, MeasurementRow
from core.database.session import Database
from core.database.tables import Alias, Job, Model, Task, Version, VersionTaskResult
from core.edits.record import read_edited_task_numbers
from core.execution.result import JobProcessResult
from core.ingest.dataset import memory_map_image_dataset
from core.ingest.stored_predictions import (
    TaskPredictionsPlaceInBlob,
    parse_predictions,
    read_encrypted_predictions,
    read_predictions_written_by_job,
)
from core.jobs.fence import JobClaim
from core.lineage.feature_collapse import (
    compute_feature_accuracy_drop,
    find_ancestor_with_best_features,
)
from core.lineage.gate import ComparisonWithProductionVersion
from core.lineage.judgement import get_gate_limits_of_job
from core.lineage.lineage import PRODUCTION
from core.publishing.features import compare_feature_accuracy_with_ancestors
from core.publishing.losses import compare_newly_wrong_images_for_gate
from core.statistics import flips
from core.statistics.flips import Mask, PredictionFlipCounts
from core.storage import Blobs


@dataclass(frozen=True)
class ProductionComparison:
    """Counts of a new version's comparison with production, and production's number at that time.

    Attributes:
        production: number of the version in production; None if there is none.
        counted: negative flips; None if there was nothing to compare with.
        losses: counts image by image; None if nothing was counted.
        features: counts of features against ancestors; None if nothing was counted.
    """

    production: int | None
    counted: ComparisonWithProductionVersion | None
    losses: GateComparisons | None = None
    features: AncestorFeatureComparison | None = None

    def build_comparison_measurement_rows(self) -> list[MeasurementRow]:
        """Return the counts of changed predictions as measurement rows, for the verdict."""
        rows, flipped, losses = [], self.counted, self.losses
        if flipped is not None and flipped.images:
            rate = flipped.negative / flipped.images
            rows.append(MeasurementRow(NEGATIVE_FLIPS, ALL_TASKS, rate, vars(flipped)))
        if losses is not None:
            count = losses["forgotten"]
            net = (
                (count["negative"] - count["positive"]) / count["images"]
                if count["images"]
                else None
            )
            rows.append(MeasurementRow(LOSSES, ALL_TASKS, net, losses))
        if self.features is not None:
            best = find_ancestor_with_best_features(self.features)
            loss = None if best is None else compute_feature_accuracy_drop(best)
            rows.append(MeasurementRow(FEATURES, ALL_TASKS, loss, self.features))
        return rows


@dataclass(frozen=True)
class _TaskWithProductionPredictions:
    """A task with production's stored predictions: digests of held-out images and of predictions.

    `labels` are those of the dataset's numbers, and `place` is that of the predictions in their
    blob.
    """

    number: int
    labels: list[str]
    held_out: str
    predictions: str
    place: TaskPredictionsPlaceInBlob


def find_production_version_number(session: Session, model_id: str) -> int | None:
    """Return the number of a model's version in production."""
    return session.scalar(
        select(Alias.version).where(Alias.model_id == model_id, Alias.name == PRODUCTION)
    )


def compare_version_with_production(
    db: Database, blobs: Blobs, claim: JobClaim, result: JobProcessResult[LearnJobResult]
) -> ProductionComparison:
    """Count newly wrong predictions against production as the gate needs them, and compare
    features.
    """
    comparison = _count_negative_flips_against_production(db, blobs, claim, result)
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        features = compare_feature_accuracy_with_ancestors(
            session, session.get_one(Model, job.model_id), job, result.document
        )
    losses = compare_newly_wrong_images_for_gate(db, blobs, claim, result, comparison.production)
    return replace(comparison, losses=losses, features=features)


def _count_negative_flips_against_production(
    db: Database, blobs: Blobs, claim: JobClaim, result: JobProcessResult[LearnJobResult]
) -> ProductionComparison:
    """Count negative flips (right before, wrong now) against production, if the gate limits them."""
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        model = session.get_one(Model, job.model_id)
        number = find_production_version_number(session, model.id)
        is_limited = get_gate_limits_of_job(model, job).get("max_negative_flips") is not None
        if not is_limited or not number:  # version 0 was taught nothing that could be lost
            return ProductionComparison(number, None)
        tasks = {
            task.number: task
            for task in session.scalars(select(Task).where(Task.model_id == model.id))
        }
        # The job has compared the two on the same decoded images, so nothing is fetched.
        if number == job.parent_version and job.kind != JobKind.EDIT:
            retained_tasks = {n for n, task in tasks.items() if task.data_deleted_at is None}
            return ProductionComparison(
                number, _sum_flips_against_parent(number, result.document, retained_tasks)
            )
        if result.document.problem is not None:  # its predictions are no rows of classes
            return ProductionComparison(number, None)
        version = select(Version.manifest).where(
            Version.model_id == model.id, Version.number == number
        )
        manifest: Manifest = session.scalars(version).one()
        edited = read_edited_task_numbers(session, job.id)
        measured_tasks = [
            task
            for task in _find_tasks_with_production_predictions(session, model, number, tasks)
            if task.number not in edited
        ]
    return ProductionComparison(
        number, _count_flips_against_production(blobs, number, manifest, measured_tasks, result)
    )


def _sum_flips_against_parent(
    number: int, result: LearnJobResult, tasks: set[int]
) -> ComparisonWithProductionVersion:
    """Sum the changed predictions against the parent, as the job itself counted them."""
    changes = [change for task, change in (result.changes or {}).items() if int(task) in tasks]
    return ComparisonWithProductionVersion(
        number, sum(c.regressed for c in changes), sum(c.total for c in changes)
    )


def _find_tasks_with_production_predictions(
    session: Session, model: Model, number: int, tasks: dict[int, Task]
) -> list[_TaskWithProductionPredictions]:
    """Return the tasks for which the production version's predictions are stored."""
    query = select(VersionTaskResult.task, VersionTaskResult.answers).where(
        VersionTaskResult.model_id == model.id,
        VersionTaskResult.version == number,
        VersionTaskResult.answers.is_not(None),
    )
    measured_tasks = []
    for task_number, digest in session.execute(query):
        task = tasks[task_number]
        if (
            digest is not None
            and task.held_out_sha256 is not None
            and task.held_out_deleted_at is None
        ):
            # A dataset numbers its own classes in sorted order, unless the model fixes the list.
            labels = order_task_labels_by_dataset_number(model, task.classes)
            predictions_location = TaskPredictionsPlaceInBlob(number, task_number, task.answers_key)
            measured_tasks.append(
                _TaskWithProductionPredictions(
                    task_number, labels, task.held_out_sha256, digest, predictions_location
                )
            )
    return measured_tasks


def _count_flips_against_production(
    blobs: Blobs,
    number: int,
    manifest: Manifest,
    measured_tasks: list[_TaskWithProductionPredictions],
    result: JobProcessResult[LearnJobResult],
) -> ComparisonWithProductionVersion:
    """Count changed predictions between production's stored predictions and those of the result."""
    written = read_predictions_written_by_job(result.folder, result.document.answers)
    mine = {task: data for (version, task), data in written.items() if version == "new"}
    heads = {head.task: head.classes for head in result.document.heads}
    total = PredictionFlipCounts()
    for task in measured_tasks:
        if task.number not in mine:
            continue
        _, labels = memory_map_image_dataset(blobs.fetch_verified_file(task.held_out))
        # By labels and not by rows: the two versions may number their classes differently.
        truth = np.array(task.labels, object)[labels]
        old_head = manifest.find_head_entry(task.number)
        old_rows, _ = read_encrypted_predictions(
            blobs.fetch_verified_file(task.predictions), task.place
        )
        new_rows, _ = parse_predictions(mine[task.number])
        old = _mask_correct_predictions(
            old_rows, old_head.classes if old_head else manifest.classes or task.labels, truth
        )
        total += flips.count_prediction_flips(
            old,
            _mask_correct_predictions(
                new_rows, heads.get(task.number, result.document.classes), truth
            ),
        )
    return ComparisonWithProductionVersion(number, total.negative, total.n)


def _mask_correct_predictions(rows: np.ndarray, classes: list[str], truth: np.ndarray) -> Mask:
    """Return a mask of the images that a version predicts correctly."""
    return np.asarray(np.array(classes, object)[rows] == truth, bool)
