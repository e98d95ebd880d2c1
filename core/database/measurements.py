"""Measurements of a version as rows: one for each figure, and one more if it is given by task.

A job's result and the manifest in a response have each figure as one document.
`build_measurement_rows` takes it apart, and `build_measurement_documents` puts it together again.
The figures of many versions can thus be read without the part that grows with the tasks. `ROW` has
figures derived from the version's own row of the accuracy matrix; it is not in the manifest.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from core.contract.figures import VersionFigures
from core.contract.manifest import Manifest
from core.database.bulk import (
    build_concatenated_column_aggregates,
    parse_concatenated_column_aggregates,
)
from core.database.tables import VersionMeasurement

NAMES = tuple(VersionFigures.model_fields)
"""Figures that a manifest shows."""
ROW = "row"
"""Figures of a version's row: ACC as the number, and `{"last", "forgetting"}`."""
NEGATIVE_FLIPS = "negative_flips"
"""Comparison with production, if the gate needs it: the rate, and `{"version", "negative",
"images"}`; not in the manifest.
"""
LOSSES = "losses"
"""Counts of the gate's checks: the net share of forgotten images, and
`core.contract.losses.GateComparisons`.
"""
FEATURES = "features"
"""Comparison with ancestors' features: the accuracy lost to the best one, and
`core.contract.features.AncestorFeatureComparison`.
"""
ADVICE = "advice"
"""Advice given to a version or its ancestors that still holds: `{"given": [conditions]}`."""
PROBE = "knn_probe"
"""The k-NN probe: correct predictions and images, over all tasks and by task."""
CALIBRATION = "calibration"
"""The calibration error, and the number of correct predictions above each probability."""
ALL_TASKS = 0
"""Task number that stands for all tasks together."""
EACH_TASK = -1
"""Task number that stands for each task; `detail` has an entry for each, by its number as a text.
"""
_BY_TASK = ("changes", "baseline_later")
"""Documents that are entirely by task."""
_CURVES = "adp"
"""Figure with a row for each task, to read the means of many versions without the curves."""
_TASKS = dict.fromkeys(("knn_probe", "forecast", "baseline_ncm", "baseline_lda"), "tasks")
"""Key of the part by task in each document; `adp` is given by step and task."""
_VALUE = {
    "update_norm": "backbone",
    "forecast": "predicted",
    "rollback": "first",
    "calibration": "error",
}


@dataclass(frozen=True)
class MeasurementRow:
    """A row of the database table of measurements: one figure of a version.

    `value` is the main figure, and `detail` the document of the manifest if it is not a number.
    """

    name: str
    task: int
    value: float | None
    detail: Any = None


def build_measurement_rows(
    figures: VersionFigures, without: Collection[int] = ()
) -> list[MeasurementRow]:
    """Split the figures of a version into rows of the table of measurements; a null or missing
    figure has none.

    Args:
        without: tasks to leave out.
    """
    result = []
    values = figures.dump_named_fields_to_json(NAMES)
    for name in NAMES:
        document = values.get(name)
        if document is None:
            continue
        summary, by_task = _split_measurements_by_task(name, document)
        by_task = {task: of_task for task, of_task in by_task.items() if int(task) not in without}
        detail = summary if isinstance(summary, dict) else None
        result.append(
            MeasurementRow(
                name, ALL_TASKS, _get_measured_value_as_float(summary, _VALUE.get(name)), detail
            )
        )
        if name == _CURVES:
            result += [
                MeasurementRow(
                    name, int(task), _get_measured_value_as_float(of_task, "mean"), of_task
                )
                for task, of_task in by_task.items()
            ]
        elif by_task:
            result.append(MeasurementRow(name, EACH_TASK, None, by_task))
    return result


def build_measurement_documents(rows: Iterable[MeasurementRow]) -> dict[str, Any]:
    """Join a version's measurement rows to the figures that they come from, by name."""
    summaries: dict[str, Any] = {}
    by_task: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.task == ALL_TASKS:
            summaries[row.name] = row.value if row.detail is None else row.detail
        elif row.task == EACH_TASK:
            by_task[row.name] = row.detail
        else:
            by_task.setdefault(row.name, {})[str(row.task)] = row.detail
    return {
        name: _join_measurement_document(name, summaries[name], by_task.get(name, {}))
        for name in NAMES
        if name in summaries
    }


def replace_manifest_figures_by_null(manifest: Manifest) -> Manifest:
    """Return a manifest in which each figure is null, because figures are stored as rows beside it."""
    # Only fields that are set, so that a figure that was never there does not become null.
    return manifest.model_copy(update=dict.fromkeys(manifest.model_fields_set & set(NAMES)))


def insert_measurement_rows(
    session: Session, model_id: str, version: int, rows: Iterable[MeasurementRow]
) -> None:
    """Insert a version's measured figures as rows into the table of measurements."""
    version_key = {"model_id": model_id, "version": version}
    values = [
        {
            **version_key,
            "name": row.name,
            "task": row.task,
            "value": row.value,
            "detail": row.detail,
        }
        for row in rows
    ]
    if values:
        session.connection().execute(insert(VersionMeasurement), values)


def read_version_measurements(
    session: Session, model_id: str, numbers: Collection[int], names: Collection[str] = NAMES
) -> dict[int, dict[str, Any]]:
    """Read the measured figures of some versions of a model, by version number and name."""
    table = VersionMeasurement
    of_these = (table.model_id == model_id, table.version.in_(numbers), table.name.in_(names))
    rows_by_version: dict[int, list[MeasurementRow]] = {number: [] for number in numbers}
    of_all = select(table.version, table.name, table.task, table.value, table.detail)
    for version, *row in session.execute(of_all.where(*of_these, table.task == ALL_TASKS)):
        rows_by_version[version].append(MeasurementRow(*row))
    # Parts by task come as one text: a row for each would dominate the time (`core.database.bulk`).
    by_task = select(
        table.version, table.name, *build_concatenated_column_aggregates(table.task, table.detail)
    )
    by_task = by_task.where(*of_these, table.task != ALL_TASKS).group_by(table.version, table.name)
    for version, name, *texts in session.execute(by_task):
        details = zip(*parse_concatenated_column_aggregates(texts), strict=True)
        rows_by_version[version] += [
            MeasurementRow(name, task, None, detail) for task, detail in details
        ]
    return {
        number: build_measurement_documents(of_one) for number, of_one in rows_by_version.items()
    }


def _split_measurements_by_task(name: str, document: Any) -> tuple[Any, dict[str, Any]]:
    """Split a measurement document into the part about all tasks and the parts by task."""
    if name in _BY_TASK:
        return {}, document
    if name == _CURVES:
        curve = document["curve"]
        tasks = dict.fromkeys(document["mean"]) | dict.fromkeys(
            t for p in curve for t in p["accuracy"]
        )
        summary = {"curve": [{**point, "accuracy": {}} for point in curve]}
        return summary, {
            task: {
                "mean": document["mean"].get(task),
                "curve": [p["accuracy"].get(task) for p in curve],
            }
            for task in tasks
        }
    if name in _TASKS:
        return {**document, _TASKS[name]: {}}, document[_TASKS[name]]
    return document, {}


def _join_measurement_document(name: str, summary: Any, by_task: Mapping[str, Any]) -> Any:
    """Join the parts of a measurement document: the one about all tasks, and those by task."""
    ordered = {task: by_task[task] for task in sorted(by_task)}  # as the job writes them
    if name in _BY_TASK:
        return ordered
    if name == _CURVES:
        curve = [
            {
                **point,
                "accuracy": {
                    t: a
                    for t, task_figures in ordered.items()
                    if (a := task_figures["curve"][i]) is not None
                },
            }
            for i, point in enumerate(summary["curve"])
        ]
        return {
            "mean": {
                t: task_figures["mean"]
                for t, task_figures in ordered.items()
                if task_figures["mean"] is not None
            },
            "curve": curve,
        }
    return {**summary, _TASKS[name]: ordered} if name in _TASKS else summary


def _get_measured_value_as_float(figure: Any, key: str | None) -> float | None:
    """Return a measured figure as a number: the value itself, or the one under `key`."""
    value = figure.get(key) if isinstance(figure, dict) else figure
    return float(value) if isinstance(value, int | float) else None
