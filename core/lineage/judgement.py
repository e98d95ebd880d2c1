"""The verdict on a version from stored measurements, its gate, and the standings of tasks."""

import math

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.features import AncestorFeatureComparison
from core.contract.gate import GateOut, Verdict
from core.contract.losses import GateComparisons
from core.database.kinds import JobKind
from core.database.measurements import ALL_TASKS, FEATURES, LOSSES, NEGATIVE_FLIPS
from core.database.tables import Job, Model, Task, Version, VersionMeasurement
from core.lineage.accuracy_row import read_accuracy_matrix_row
from core.lineage.confident_predictions import choose_threshold_for_promised_precision
from core.lineage.coverage import find_lacking_required_tasks_and_classes, list_taught_tasks
from core.lineage.gate import (
    ComparisonWithProductionVersion,
    GateMetrics,
    VersionLineageFacts,
    judge_gate_metrics,
)
from core.lineage.label_doubts import find_mostly_doubted_labels_finding
from core.statistics.matrix_row import compute_version_accuracy_figures


def judge_version_by_gate(session: Session, model: Model, version: Version) -> Verdict:
    """Judge a version by the gate of its job, and return the verdict.

    A change of the model's gate affects only later tasks.
    """
    tasks = list_taught_tasks(version.manifest)
    row = read_accuracy_matrix_row(session, model.id, version.number)
    figures = compute_version_accuracy_figures(tasks, row, model.scenario)
    own_cell = row.get(version.task_number or 0)
    rise = read_forecast_loss_rise(session, model.id, version.number)
    comparison = read_production_comparison(session, model.id, version.number)
    job = session.get(Job, version.job_id) if version.job_id is not None else None
    metrics = GateMetrics(
        figures.forgetting,
        own_cell.accuracy if own_cell else None,
        figures.acc,
        rise,
        comparison,
        compute_confidently_predicted_share(session, model, version.number),
        read_prediction_changes_for_gate(session, model.id, version.number),
        read_feature_accuracy_comparison(session, model.id, version.number),
        _read_doubted_labels_finding(session, job, version.task_number),
    )
    limits = get_gate_limits_of_job(model, job)
    lacks = find_lacking_required_tasks_and_classes(
        session, model, tasks, again=job is not None and job.again
    )
    # An edit replaces the head that it began from, though it may continue an older version.
    replaces = job is not None and job.kind == JobKind.EDIT
    parent = (job.parent_version if job is not None and replaces else version.parent) or 0
    lineage_facts = VersionLineageFacts(
        parent, model.head, lacks, model.allow_lost_classes, model.id
    )
    return judge_gate_metrics(limits or {}, metrics, lineage_facts)


def get_gate_limits_of_job(model: Model, job: Job | None) -> GateOut:
    """Return the gate limits for a job's version; fields that older rows lack are added."""
    # Jobs that were submitted before each had its own gate are judged by their model's.
    return model.gate if job is None or job.gate is None else job.gate


def read_production_comparison(
    session: Session, model_id: str, version: int
) -> ComparisonWithProductionVersion | None:
    """Read a version's stored comparison with production, if the gate limits it."""
    measurement = session.get(VersionMeasurement, (model_id, version, NEGATIVE_FLIPS, ALL_TASKS))
    return None if measurement is None else ComparisonWithProductionVersion(**measurement.detail)


def read_prediction_changes_for_gate(
    session: Session, model_id: str, version: int
) -> GateComparisons | None:
    """Read the stored prediction changes that the gate's checks need, if it has such checks."""
    row = session.get(VersionMeasurement, (model_id, version, LOSSES, ALL_TASKS))
    return None if row is None else row.detail


def read_feature_accuracy_comparison(
    session: Session, model_id: str, version: int
) -> AncestorFeatureComparison | None:
    """Read the stored comparison of a version's feature accuracy with its ancestors'."""
    row = session.get(VersionMeasurement, (model_id, version, FEATURES, ALL_TASKS))
    return None if row is None else row.detail


def _read_doubted_labels_finding(
    session: Session, job: Job | None, number: int | None
) -> str | None:
    """Read the finding that most labels of a task's batch look wrong, if there is one.

    A job without a data report leaves that of an earlier job in the task.
    """
    if job is None or job.recipe.get("data_report") == "off":
        return None
    task = select(Task.report).where(Task.model_id == job.model_id, Task.number == number)
    return find_mostly_doubted_labels_finding(session.scalar(task))


def compute_confidently_predicted_share(
    session: Session, model: Model, version: int
) -> float | None:
    """Compute the share of held-out images that a version predicts with confidence, in [0, 1].

    None if the model promises no precision, or nothing was measured.
    """
    sure = choose_threshold_for_promised_precision(session, model, version)
    return None if sure is None or not sure["images"] else sure["covered"] / sure["images"]


def read_forecast_loss_rise(session: Session, model_id: str, version: int) -> float | None:
    """Read the forecast rise of the earlier tasks' mean loss from a version's measurements.

    It is infinite if it was not a finite number, and None if the method makes no forecast.
    """
    measurement = session.get(VersionMeasurement, (model_id, version, "forecast", ALL_TASKS))
    if measurement is None:
        return None
    # Stored as null, since JSON has no infinity; it must fail every limit.
    return math.inf if measurement.value is None else measurement.value
