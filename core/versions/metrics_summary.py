"""Figures of one version along its ancestors, computed from stored rows.

The inputs are the version's own row of the accuracy matrix and the first cells of each task. In
addition, every earlier version has stored figures of its own row (`core.statistics.matrix_row`). The matrix
itself is not needed; it grows with the square of the number of versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from sqlalchemy import BindParameter, and_, bindparam, literal_column, or_, select
from sqlalchemy.orm import Session

from core.contract.responses.versions.manifest import CalibrationOut
from core.contract.responses.versions.metrics import (
    JobMeasuredFigures,
    SingleVersionFigures,
    Summary,
    TaskAccuracy,
)
from core.database.bulk import (
    build_concatenated_column_aggregates,
    parse_concatenated_column_aggregates,
)
from core.database.measurements import ALL_TASKS, EACH_TASK, ROW
from core.database.tables import Model, VersionMeasurement, VersionTaskResult
from core.lineage.accuracy_row import read_accuracy_matrix_row
from core.lineage.confident_predictions import choose_threshold_for_promised_precision
from core.statistics import matrix
from core.statistics.matrix_row import LineageMatrixFromStoredFigures, MatrixCellCounts

_NUMBERS = ("drift", "adp")
_DOCUMENTS = (ROW, "update_norm", "forecast", "knn_probe", "baseline_ncm", "baseline_lda")
"""Figures of every version of a lineage.

The `adp` row of all tasks has no number; it marks that rows of tasks exist.
"""


class LearnedTask(NamedTuple):
    """A task that some version learned: its name, and the classes with their counts."""

    name: str | None
    classes: Mapping[str, int]
    n_held_out: int | None


class VersionSizeAndDuration(NamedTuple):
    """A version with its status, the bytes of its parts, and the seconds that its job took."""

    row: matrix.AccuracyMatrixVersion
    status: str
    bytes: int
    seconds: float | None


class ModelVersionsAndTasks(NamedTuple):
    """A model's versions and learned tasks by number, with the first measurements of each task."""

    published: Mapping[int, VersionSizeAndDuration]
    tasks: Mapping[int, LearnedTask]
    first: matrix.Cells


_Recorded = Mapping[str, Mapping[int, Any]]
"""Numbers or documents by name of the figure, then by version."""
AT_ONCE = 500
"""Maximum number of versions in one statement, since SQLite limits the number of bound values."""
# Statements are built once at import: building them takes longer than running most of them.
_MODEL: BindParameter[str] = bindparam("model")
_VERSION: BindParameter[int] = bindparam("version")
_FIRST_CELLS = select(
    *build_concatenated_column_aggregates(
        VersionTaskResult.version,
        VersionTaskResult.task,
        VersionTaskResult.correct,
        VersionTaskResult.total,
    )
).where(VersionTaskResult.model_id == _MODEL, VersionTaskResult.best.is_(None))
_COUNTS = select(
    *build_concatenated_column_aggregates(VersionTaskResult.task, VersionTaskResult.per_class)
).where(VersionTaskResult.model_id == _MODEL, VersionTaskResult.version == _VERSION)
_OF_ALL_TASKS = (
    VersionMeasurement.model_id == _MODEL,
    # a literal, so that the partial index matches
    VersionMeasurement.task == literal_column(str(ALL_TASKS)),
)
_RECORDED_NUMBERS = select(
    VersionMeasurement.name, VersionMeasurement.version, VersionMeasurement.value
).where(*_OF_ALL_TASKS, VersionMeasurement.name.in_(_NUMBERS))
_RECORDED_DOCUMENTS = (
    select(
        VersionMeasurement.name,
        *build_concatenated_column_aggregates(
            VersionMeasurement.version, VersionMeasurement.detail
        ),
    )
    .where(*_OF_ALL_TASKS, VersionMeasurement.name.in_(_DOCUMENTS))
    .group_by(VersionMeasurement.name)
)
_OF_ONE = select(VersionMeasurement.name, VersionMeasurement.detail).where(
    *(VersionMeasurement.model_id == _MODEL, VersionMeasurement.version == _VERSION),
    or_(
        and_(
            VersionMeasurement.task == EACH_TASK,
            VersionMeasurement.name.in_(("changes", "knn_probe")),
        ),
        and_(VersionMeasurement.task == ALL_TASKS, VersionMeasurement.name == "calibration"),
    ),
)
_ANYTIME = (
    select(VersionMeasurement.version, VersionMeasurement.task, VersionMeasurement.value)
    .where(
        *(
            VersionMeasurement.model_id == _MODEL,
            VersionMeasurement.name == "adp",
            VersionMeasurement.task > ALL_TASKS,
        ),
        VersionMeasurement.version.in_(bindparam("versions", expanding=True)),
    )
    .order_by(VersionMeasurement.task)
)


def read_first_measurements_of_tasks(
    session: Session, model: Model
) -> dict[tuple[int, int], tuple[int, int]]:
    """Read the first measured (correct, total) on each task, by (version, task).

    These are the cells from before the task was learned and from when it was learned, for each task
    that was ever measured.
    """
    columns = session.connection().execute(_FIRST_CELLS, {"model": model.id}).one()
    versions, tasks, correct, totals = parse_concatenated_column_aggregates(columns)
    return dict(
        zip(zip(versions, tasks, strict=True), zip(correct, totals, strict=True), strict=True)
    )


def build_version_summary(
    session: Session,
    model: Model,
    version: int,
    taught: tuple[int, ...],
    history: ModelVersionsAndTasks,
) -> Summary:
    """Compute the summary figures of a version, named as in `matrix.DEFINITIONS`.

    Args:
        taught: tasks that the version was taught, in order.

    Raises:
        KeyError: an ancestor of the version is missing.
    """
    published, tasks, first = history
    rows = [one.row for one in published.values() if one.row.version != version]
    rows.append(replace(published[version].row, tasks=taught))
    row, per_class = _read_matrix_row(session, model, version)
    recorded = _read_figures_recorded_per_version(session, model)
    stored = {n: (figures["last"], figures["forgetting"]) for n, figures in recorded[ROW].items()}
    stages = LineageMatrixFromStoredFigures(rows, first, row, stored, version, model.scenario)
    lineage = [one.version for one in stages.line]
    classes = {number: list(task.classes) for number, task in tasks.items()}
    ever = {task for (_, task), (_, total) in first.items() if total}
    return {
        **matrix.summarise_lineage_accuracy_matrix(stages, per_class),
        **_build_job_measured_figures(recorded, lineage[1:]),
        **_read_figures_of_one_version(session, model, version, recorded["knn_probe"].get(version)),
        "sure": choose_threshold_for_promised_precision(session, model, version),
        "adp_mean": _read_anytime_accuracy_means(session, model, recorded["adp"], lineage[1:]),
        "seconds": [published[number].seconds for number in lineage[1:]],
        "bytes": [published[number].bytes for number in lineage[1:]],
        "degenerate": matrix.find_single_class_tasks(stages, classes),
        "unmeasured_classes": []
        if model.problem is not None  # its labels are no classes
        else matrix.find_learned_classes_without_test_images(stages, per_class, classes, ever),
    }


def _read_matrix_row(
    session: Session, model: Model, version: int
) -> tuple[dict[int, MatrixCellCounts], dict[tuple[int, int], dict[str, list[int]]]]:
    """Read a version's row of the accuracy matrix: cells by task, and their counts by class."""
    of_version = {"model": model.id, "version": version}
    tasks, per_class = parse_concatenated_column_aggregates(
        session.connection().execute(_COUNTS, of_version).one()
    )
    counts = {
        (version, task): class_counts for task, class_counts in zip(tasks, per_class, strict=True)
    }
    return read_accuracy_matrix_row(session, model.id, version), counts


def _read_figures_recorded_per_version(session: Session, model: Model) -> _Recorded:
    """Read the figures that the jobs recorded for each version, by name and version."""
    recorded: dict[str, dict[int, Any]] = {name: {} for name in (*_NUMBERS, *_DOCUMENTS)}
    connection, of_model = session.connection(), {"model": model.id}
    for name, version, value in connection.execute(_RECORDED_NUMBERS, of_model).all():
        recorded[name][version] = value
    for name, *texts in connection.execute(_RECORDED_DOCUMENTS, of_model):
        recorded[name] = dict(zip(*parse_concatenated_column_aggregates(texts), strict=True))
    return recorded


def _build_job_measured_figures(
    recorded: _Recorded, lineage_versions: Sequence[int]
) -> JobMeasuredFigures:
    """Summarise figures that the learning jobs of these versions recorded, such as update norms."""

    def read_recorded_numbers(name: str, key: str) -> list[float | None]:
        return [_to_float(recorded[name].get(version, {}).get(key)) for version in lineage_versions]

    def read_recorded_shares(name: str) -> list[float | None]:
        return [
            _compute_share(recorded[name].get(version, {}).get("all"))
            for version in lineage_versions
        ]

    return {
        "fwt_probe": matrix.average_defined_values(
            _compute_forward_transfer(recorded["knn_probe"].get(version, {}))
            for version in lineage_versions
        ),
        "update_norm": read_recorded_numbers("update_norm", "backbone"),
        "update_norm_head": read_recorded_numbers("update_norm", "head"),
        "update_norm_relative": read_recorded_numbers("update_norm", "relative"),
        "drift": [recorded["drift"].get(version) for version in lineage_versions],
        "baseline_ncm": read_recorded_shares("baseline_ncm"),
        "baseline_lda": read_recorded_shares("baseline_lda"),
        "predicted_loss_rise": read_recorded_numbers("forecast", "predicted"),
        "measured_loss_rise": read_recorded_numbers("forecast", "measured"),
    }


def _read_figures_of_one_version(
    session: Session, model: Model, version: int, probe: Mapping[str, Any] | None
) -> SingleVersionFigures:
    """Read the figures that are recorded only for the requested version, by task."""
    of_version = {"model": model.id, "version": version}
    documents: dict[str, dict[str, Any]] = dict(
        session.connection().execute(_OF_ONE, of_version).all()
    )
    changes, probes = documents.get("changes", {}), documents.get("knn_probe", {})
    worse, better = matrix.compute_regression_and_improvement_rates(
        (c["regressed"], c["improved"], c["total"]) for c in changes.values()
    )
    return {
        "calibration": _calibration_to_json(documents.get("calibration")),
        "regression_rate": worse,
        "improvement_rate": better,
        "knn_probe": {
            "accuracy": _compute_share(probe["all"]),
            "per_task": [
                {"task": int(task), "accuracy": _compute_share(probes[task])}
                # JSON keys are texts, and as a text "10" comes before "2".
                for task in sorted(probes, key=int)
            ],
        }
        if probe
        else None,
    }


def _calibration_to_json(document: dict[str, Any] | None) -> CalibrationOut | None:
    return None if document is None else cast(CalibrationOut, document)


def _read_anytime_accuracy_means(
    session: Session, model: Model, measured: Mapping[int, Any], lineage_versions: Sequence[int]
) -> list[list[TaskAccuracy] | None]:
    """Return each version's mean Anytime Deployment Performance by task; None where not measured.

    Args:
        measured: versions whose jobs measured them.
    """
    accuracies: dict[int, list[TaskAccuracy]] = {
        version: [] for version in lineage_versions if version in measured
    }
    versions = list(accuracies)
    for start in range(0, len(versions), AT_ONCE):
        part = {"model": model.id, "versions": versions[start : start + AT_ONCE]}
        for version, task, mean in session.connection().execute(_ANYTIME, part).all():
            accuracies[version].append({"task": task, "accuracy": mean})
    return [accuracies.get(version) for version in lineage_versions]


def _compute_forward_transfer(probe: Mapping[str, Any]) -> float | None:
    """Compute forward transfer: k-NN accuracy of the parent on the new task, minus that of version
    0.
    """
    before = probe.get("before") or {}
    parent, base = _compute_share(before.get("parent")), _compute_share(before.get("base"))
    return None if parent is None or base is None else parent - base


def _compute_share(counts: list[int] | None) -> float | None:
    return counts[0] / counts[1] if counts and counts[1] else None


def _to_float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
