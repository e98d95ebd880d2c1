"""The figures of one version along its ancestors, as rows that are already there.

Needed are the version's own row of the accuracy matrix, the first cells of each task, and what every version before has
stored of its own row (`core.matrix_row`): not the matrix, which grows with the square of the versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import literal_column, select
from sqlalchemy.orm import Session

from core import matrix
from core.db.lists import listed, lists
from core.db.measurements import ALL_TASKS, FORGETTING, LAST
from core.db.tables import Measurement, Model, Result, Version
from core.matrix_row import Cell, StoredStages

_OF_THE_LINE = ("update_norm", "drift", "forecast", "knn_probe", LAST, FORGETTING)
"""Figures that are told of every version of a line."""


class Learned(NamedTuple):
    """A task that some version learned; `classes` are its labels with counts."""

    name: str | None
    classes: Mapping[str, int]
    n_held_out: int | None


class Published(NamedTuple):
    """A version with the bytes of its parts, and the seconds that its job took."""

    row: matrix.Row
    bytes: int
    seconds: float | None


_Told = Mapping[str, tuple[float | None, Any]]
"""Of one version: name → (value, detail)."""
_NOTHING: tuple[None, None] = (None, None)


def first_cells(session: Session, model: Model) -> dict[tuple[int, int], tuple[int, int]]:
    """(version, task) → (correct, total) of each task before it was learned, and when; of each task that was ever measured."""
    query = select(*listed(Result.version, Result.task, Result.correct, Result.total))
    query = query.where(Result.model_id == model.id, Result.best.is_(None))
    versions, tasks, correct, totals = lists(session.execute(query).one())
    return dict(zip(zip(versions, tasks, strict=True), zip(correct, totals, strict=True), strict=True))


def summary(
    session: Session,
    model: Model,
    version: int,
    taught: tuple[int, ...],
    published: Mapping[int, Published],
    tasks: Mapping[int, Learned],
    first: matrix.Cells,
) -> dict[str, Any]:
    """The figures of `version` by the names of `matrix.DEFINITIONS`.

    Args:
        taught: the tasks that the version was taught, in order.
        published: all versions of the model, by number.
        tasks: that were learned, by number.
        first: see `first_cells`.

    Raises:
        KeyError: an ancestor of the version is not there.
    """
    rows = [one.row for one in published.values() if one.row.version != version]
    rows.append(replace(published[version].row, tasks=taught))
    row, per_class = _row(session, model, version)
    told = _told(session, model)
    stored = {n: (of.get(LAST, _NOTHING)[0], of.get(FORGETTING, _NOTHING)[0]) for n, of in told.items()}
    stages = StoredStages(rows, first, row, stored, version, model.scenario)
    line = [one.version for one in stages.line]
    classes = {number: list(task.classes) for number, task in tasks.items()}
    ever = {task for (_, task), (_, total) in first.items() if total}
    return {
        **matrix.figures(stages, per_class),
        **_of_the_line([told.get(number, {}) for number in line]),
        **_of_the_last(session, model, version, told.get(version, {})),
        "adp_mean": _anytime(session, model, line),
        "seconds": [published[number].seconds for number in line[1:]],
        "bytes": [published[number].bytes for number in line[1:]],
        "degenerate": matrix.degenerate(stages, classes),
        "unmeasured_classes": matrix.unmeasured(stages, per_class, classes, ever),
    }


def _row(
    session: Session, model: Model, version: int
) -> tuple[dict[int, Cell], dict[tuple[int, int], dict[str, list[int]]]]:
    """The version's cells by task, and their counts by class."""
    columns = (Result.task, Result.correct, Result.total, Result.best, Result.per_class)
    query = select(*columns).where(Result.model_id == model.id, Result.version == version)
    found = session.connection().execute(query).all()
    cells = {task: Cell(correct, total, best) for task, correct, total, best, _ in found}
    return cells, {(version, task): per_class for task, *_, per_class in found}


def _told(session: Session, model: Model) -> dict[int, dict[str, tuple[float | None, Any]]]:
    """What the rows of all tasks together say, by version and name."""
    of_all = (
        Measurement.model_id == model.id,
        Measurement.name.in_(_OF_THE_LINE),
        Measurement.task == literal_column(str(ALL_TASKS)),  # in the words of the index
    )
    query = select(Measurement.version, Measurement.name, Measurement.value).where(*of_all)
    found: dict[int, dict[str, tuple[float | None, Any]]] = {}
    for version, name, value in session.connection().execute(query).all():
        found.setdefault(version, {})[name] = (value, None)
    details = select(Measurement.name, *listed(Measurement.version, Measurement.detail)).where(
        *of_all, Measurement.detail.is_not(None)
    )
    for name, *texts in session.execute(details.group_by(Measurement.name)):
        for version, detail in zip(*lists(texts), strict=True):
            found[version][name] = (found[version][name][0], detail)
    return found


def _of_the_line(line: Sequence[_Told]) -> dict[str, Any]:
    """Figures that the jobs of a line measured themselves."""
    steps = line[1:]
    return {
        "fwt_probe": matrix.mean(_forward(_detail(of, "knn_probe")) for of in steps),
        "update_norm": [_number(_detail(of, "update_norm").get("backbone")) for of in steps],
        "update_norm_head": [_number(_detail(of, "update_norm").get("head")) for of in steps],
        "update_norm_relative": [_number(_detail(of, "update_norm").get("relative")) for of in steps],
        "drift": [of.get("drift", _NOTHING)[0] for of in steps],
        "predicted_loss_rise": [_number(_detail(of, "forecast").get("predicted")) for of in steps],
        "measured_loss_rise": [_number(_detail(of, "forecast").get("measured")) for of in steps],
    }


def _of_the_last(session: Session, model: Model, version: int, told: _Told) -> dict[str, Any]:
    """Figures that are told of the asked version alone, by task."""
    query = select(Measurement.name, *listed(Measurement.task, Measurement.detail)).where(
        Measurement.model_id == model.id,
        Measurement.version == version,
        Measurement.name.in_(("changes", "knn_probe")),
        Measurement.task > ALL_TASKS,
    )
    found = {name: lists(texts) for name, *texts in session.execute(query.group_by(Measurement.name))}
    by_task = {name: sorted(zip(*columns, strict=True), key=itemgetter(0)) for name, columns in found.items()}
    changes = (counts for _, counts in by_task.get("changes", []))
    lost, gained = matrix.rates((c["regressed"], c["improved"], c["total"]) for c in changes)
    probe = _detail(told, "knn_probe")
    return {
        "regression_rate": lost,
        "improvement_rate": gained,
        "knn_probe": {
            "accuracy": _share(probe["all"]),
            "per_task": [
                {"task": task, "accuracy": _share(counts)} for task, counts in by_task.get("knn_probe", [])
            ],
        }
        if probe
        else None,
    }


def _anytime(session: Session, model: Model, line: Sequence[int]) -> list[list[dict[str, Any]] | None]:
    """Of each version of a line the mean accuracies by task; None where the job did not measure them."""
    query = (
        select(Measurement.version, Measurement.task, Measurement.value)
        .select_from(Version)
        .join(Measurement, Measurement.version == Version.number)
        .where(Version.model_id == model.id, Measurement.model_id == model.id, Measurement.name == "adp")
        .order_by(Measurement.version, Measurement.task)
    )
    found: dict[int, list[dict[str, Any]]] = {}
    for version, task, mean in session.connection().execute(query):
        of_version = found.setdefault(version, [])
        if task != ALL_TASKS:
            of_version.append({"task": task, "accuracy": mean})
    return [found.get(number) for number in line[1:]]


def _detail(told: _Told, name: str) -> dict[str, Any]:
    return told.get(name, _NOTHING)[1] or {}


def _forward(probe: Mapping[str, Any]) -> float | None:
    """Probe accuracy of a version's parent on the new task, minus that of version 0."""
    before = probe.get("before") or {}
    parent, base = _share(before.get("parent")), _share(before.get("base"))
    return None if parent is None or base is None else parent - base


def _share(counts: list[int] | None) -> float | None:
    return counts[0] / counts[1] if counts and counts[1] else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
