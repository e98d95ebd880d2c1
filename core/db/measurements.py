"""What was measured of a version, as rows: one per figure, and one more where it is given by task.

A job's result and the manifest in an answer give each figure as one document; `rows` takes it apart and
`documents` puts it together again. So the figures of many versions are read without the part that grows with the tasks.
`ROW` holds the figures that follow from the version's own row of the accuracy matrix; it is in no manifest.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from core.db.lists import listed, lists
from core.db.tables import Measurement
from core.protocol.figures import Figures
from core.protocol.manifest import Manifest

NAMES = tuple(Figures.model_fields)
"""The figures that a manifest shows."""
ROW = "row"
"""The figures of a version's row: ACC as the number, and `{"last", "forgetting"}`."""
NEGATIVE_FLIPS = "negative_flips"
"""Beside production, where the gate asks for it: the rate, and `{"version", "negative", "images"}`; in no manifest."""
LOSSES = "losses"
"""Counts of the gate's checks: the net share of forgotten images, and `core.protocol.losses.Losses`."""
FEATURES = "features"
"""Beside its ancestors' features: the accuracy lost to the best of them, and `core.protocol.features.FeatureCount`."""
ADVICE = "advice"
"""Advice that a version or its line was given, of what still holds: `{"given": [conditions]}`."""
CALIBRATION = "calibration"
"""The calibration error, and the number of right answers above each probability."""
ALL_TASKS = 0
"""Stands for the task of what holds for all tasks together."""
EACH_TASK = -1
"""Stands for the tasks one by one: `detail` says of each, by its number as a text."""
_BY_TASK = ("changes", "baseline_later")
"""Documents of which all is by task."""
_CURVES = "adp"
"""Has a row for each task: its means are read of many versions, without the curves."""
_TASKS = dict.fromkeys(("knn_probe", "forecast", "baseline_ncm", "baseline_lda"), "tasks")
"""Name → where in a document the part by task is; `adp` is given by step and task."""
_VALUE = {"update_norm": "backbone", "forecast": "predicted", "rollback": "first", "calibration": "error"}


@dataclass(frozen=True)
class Measured:
    """One row; `value` is the figure that is shown first, `detail` what a manifest shows if it is no number."""

    name: str
    task: int
    value: float | None
    detail: Any = None


def rows(figures: Figures, without: Collection[int] = ()) -> list[Measured]:
    """The rows of these figures; none of one that is null or missing.

    Args:
        without: tasks of which nothing is told.
    """
    found = []
    given = figures.fields_to_json(NAMES)
    for name in NAMES:
        document = given.get(name)
        if document is None:
            continue
        rest, by_task = _apart(name, document)
        by_task = {task: told for task, told in by_task.items() if int(task) not in without}
        detail = rest if isinstance(rest, dict) else None
        found.append(Measured(name, ALL_TASKS, _number(rest, _VALUE.get(name)), detail))
        if name == _CURVES:
            found += [
                Measured(name, int(task), _number(told, "mean"), told) for task, told in by_task.items()
            ]
        elif by_task:
            found.append(Measured(name, EACH_TASK, None, by_task))
    return found


def documents(found: Iterable[Measured]) -> dict[str, Any]:
    """The documents that these rows of one version come from, by name."""
    rest: dict[str, Any] = {}
    by_task: dict[str, dict[str, Any]] = {}
    for row in found:
        if row.task == ALL_TASKS:
            rest[row.name] = row.value if row.detail is None else row.detail
        elif row.task == EACH_TASK:
            by_task[row.name] = row.detail
        else:
            by_task.setdefault(row.name, {})[str(row.task)] = row.detail
    return {name: _together(name, rest[name], by_task.get(name, {})) for name in NAMES if name in rest}


def without_figures(manifest: Manifest) -> Manifest:
    """A manifest as it is stored beside its rows: null in place of each figure."""
    return manifest.model_copy(update=dict.fromkeys(manifest.model_fields_set & set(NAMES)))


def add(session: Session, model_id: str, version: int, found: Iterable[Measured]) -> None:
    """Write the rows of a version."""
    of = {"model_id": model_id, "version": version}
    values = [
        {**of, "name": row.name, "task": row.task, "value": row.value, "detail": row.detail} for row in found
    ]
    if values:
        session.connection().execute(insert(Measurement), values)


def of_versions(session: Session, model_id: str, numbers: Collection[int]) -> dict[int, dict[str, Any]]:
    """The documents of some versions of a model, by number and name."""
    table = Measurement
    of_these = (table.model_id == model_id, table.version.in_(numbers), table.name.in_(NAMES))
    found: dict[int, list[Measured]] = {number: [] for number in numbers}
    of_all = select(table.version, table.name, table.task, table.value, table.detail)
    for version, *row in session.execute(of_all.where(*of_these, table.task == ALL_TASKS)):
        found[version].append(Measured(*row))
    by_task = select(table.version, table.name, *listed(table.task, table.detail))
    by_task = by_task.where(*of_these, table.task != ALL_TASKS).group_by(table.version, table.name)
    for version, name, *texts in session.execute(by_task):
        told = zip(*lists(texts), strict=True)
        found[version] += [Measured(name, task, None, detail) for task, detail in told]
    return {number: documents(of_one) for number, of_one in found.items()}


def _apart(name: str, document: Any) -> tuple[Any, dict[str, Any]]:
    """What a document says of all tasks, and of each."""
    if name in _BY_TASK:
        return {}, document
    if name == _CURVES:
        curve = document["curve"]
        tasks = dict.fromkeys(document["mean"]) | dict.fromkeys(t for p in curve for t in p["accuracy"])
        rest = {"curve": [{**point, "accuracy": {}} for point in curve]}
        return rest, {
            task: {"mean": document["mean"].get(task), "curve": [p["accuracy"].get(task) for p in curve]}
            for task in tasks
        }
    if name in _TASKS:
        return {**document, _TASKS[name]: {}}, document[_TASKS[name]]
    return document, {}


def _together(name: str, rest: Any, by_task: Mapping[str, Any]) -> Any:
    told = {task: by_task[task] for task in sorted(by_task)}  # as the job writes them
    if name in _BY_TASK:
        return told
    if name == _CURVES:
        curve = [
            {**point, "accuracy": {t: a for t, of in told.items() if (a := of["curve"][i]) is not None}}
            for i, point in enumerate(rest["curve"])
        ]
        return {"mean": {t: of["mean"] for t, of in told.items() if of["mean"] is not None}, "curve": curve}
    return {**rest, _TASKS[name]: told} if name in _TASKS else rest


def _number(figure: Any, key: str | None) -> float | None:
    value = figure.get(key) if isinstance(figure, dict) else figure
    return float(value) if isinstance(value, int | float) else None
