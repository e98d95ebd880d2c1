"""The accuracy matrix of a model and the summary of one of its versions."""

from typing import Any

from sqlalchemy import select

from core import matrix
from core.db.session import Database
from core.db.tables import Job, Result, Task, Version
from core.errors import NotFound
from core.line.coverage import taught
from core.requests.actor import Actor, find_model
from core.requests.versions import find_version


def model_metrics(db: Database, actor: Actor, model: str, *, version: str) -> dict[str, Any]:
    """Rows (versions), columns (learned tasks), accuracy matrix and the summary of `version`.

    Args:
        version: number or alias whose ancestors the summary follows.

    Raises:
        NotFound: no such model or version.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        asked = find_version(session, owner, version).number
        found = session.execute(
            select(Version, Job.started_at, Job.finished_at)
            .outerjoin(Job, Job.id == Version.job_id)
            .where(Version.model_id == owner.id)
            .order_by(Version.number)
        ).all()
        rows = [matrix.Row(v.number, v.task_number, v.parent, tuple(taught(v.manifest))) for v, _, _ in found]
        statuses = {v.number: v.status for v, _, _ in found}
        manifests = {v.number: v.manifest for v, _, _ in found}
        costs = {v.number: (v.bytes, _seconds(start, end)) for v, start, end in found}
        learned = sorted({row.task for row in rows if row.task is not None})
        tasks = {
            task.number: task
            for task in session.scalars(select(Task).where(Task.model_id == owner.id))
            if task.number in set(learned)
        }
        cells: dict[tuple[int, int], tuple[int, int]] = {}
        per_class: dict[tuple[int, int], dict[str, list[int]]] = {}
        sizes: dict[int, int] = {}
        for cell in session.scalars(select(Result).where(Result.model_id == owner.id)):
            cells[cell.version, cell.task] = (cell.correct, cell.total)
            per_class[cell.version, cell.task] = cell.per_class
            sizes[cell.task] = cell.total
        columns = [_column(tasks.get(n), n, sizes.get(n, 0)) for n in learned]
        classes = {number: list(task.classes) for number, task in tasks.items()}
        scenario = owner.scenario
    try:
        stages = matrix.Stages(rows, cells, asked, scenario)
        figures = {
            **matrix.summary(rows, cells, asked, scenario, per_class=per_class),
            **_of_manifests([manifests[row.version] for row in stages.line]),
            "seconds": [costs[row.version][1] for row in stages.line[1:]],
            "bytes": [costs[row.version][0] for row in stages.line[1:]],
            "degenerate": matrix.degenerate(stages, classes),
            "unmeasured_classes": matrix.unmeasured(stages, per_class, classes),
        }
    except KeyError as error:
        raise NotFound(f"Version {asked} has an ancestor that is not there: {error}.") from error
    return {
        "version": asked,
        "rows": [
            {"version": r.version, "task": r.task, "parent": r.parent, "status": statuses[r.version]}
            for r in rows
        ],
        "columns": columns,
        "accuracy_matrix": matrix.accuracy_matrix(rows, learned, cells),
        "summary": figures,
        "definitions": matrix.DEFINITIONS,
    }


def _column(task: Task | None, number: int, measured: int) -> dict[str, Any]:
    if task is None:
        return {"task": number, "name": None, "classes": [], "n": measured}
    return {
        "task": number,
        "name": task.name,
        "classes": sorted(task.classes),
        "n": task.n_held_out if task.n_held_out is not None else measured,
    }


def _of_manifests(line: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures that the job measured itself, from the manifests of a version's ancestors and its own."""
    changes = (line[-1].get("changes") or {}).values()
    lost, gained = matrix.rates((c["regressed"], c["improved"], c["total"]) for c in changes)
    return {
        "fwt_probe": matrix.mean(_forward(manifest) for manifest in line[1:]),
        "regression_rate": lost,
        "improvement_rate": gained,
        "update_norm": _norms(line, "backbone"),
        "update_norm_head": _norms(line, "head"),
        "update_norm_relative": _norms(line, "relative"),
        "drift": [_number(manifest.get("drift")) for manifest in line[1:]],
        "predicted_loss_rise": _rises(line, "predicted"),
        "measured_loss_rise": _rises(line, "measured"),
        "adp_mean": [_adp(manifest.get("adp")) for manifest in line[1:]],
        "knn_probe": _probe(line[-1].get("knn_probe")),
    }


def _norms(line: list[dict[str, Any]], of: str) -> list[float | None]:
    return [_number((manifest.get("update_norm") or {}).get(of)) for manifest in line[1:]]


def _rises(line: list[dict[str, Any]], of: str) -> list[float | None]:
    return [_number((manifest.get("forecast") or {}).get(of)) for manifest in line[1:]]


def _adp(found: dict[str, Any] | None) -> list[dict[str, Any]] | None:
    if not found:
        return None
    means = sorted((int(task), accuracy) for task, accuracy in found["mean"].items())
    return [{"task": task, "accuracy": accuracy} for task, accuracy in means]


def _forward(manifest: dict[str, Any]) -> float | None:
    """Probe accuracy of a version's parent on the new task, minus that of version 0."""
    before = (manifest.get("knn_probe") or {}).get("before") or {}
    parent, base = _share(before.get("parent")), _share(before.get("base"))
    return None if parent is None or base is None else parent - base


def _probe(found: dict[str, Any] | None) -> dict[str, Any] | None:
    if not found:
        return None
    tasks = sorted((int(task), counts) for task, counts in found["tasks"].items())
    return {
        "accuracy": _share(found["all"]),
        "per_task": [{"task": task, "accuracy": _share(counts)} for task, counts in tasks],
    }


def _share(counts: list[int] | None) -> float | None:
    return counts[0] / counts[1] if counts and counts[1] else None


def _seconds(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
