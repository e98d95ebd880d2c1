"""The accuracy matrix of a model and the summary of one of its versions."""

from typing import Any

from sqlalchemy import select

from core import matrix
from core.db.session import Database
from core.db.tables import Result, Task, Version
from core.errors import NotFound
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
            select(Version.number, Version.task_number, Version.parent, Version.manifest)
            .where(Version.model_id == owner.id)
            .order_by(Version.number)
        ).all()
        rows = [matrix.Row(number, task, parent) for number, task, parent, _ in found]
        learned = sorted({row.task for row in rows if row.task is not None})
        tasks = {
            task.number: task
            for task in session.scalars(select(Task).where(Task.model_id == owner.id))
            if task.number in set(learned)
        }
        cells: dict[tuple[int, int], tuple[int, int]] = {}
        sizes: dict[int, int] = {}
        for cell in session.scalars(select(Result).where(Result.model_id == owner.id)):
            cells[cell.version, cell.task] = (cell.correct, cell.total)
            sizes[cell.task] = cell.total
        norms = {number: _update_norm(manifest) for number, _, _, manifest in found}
        columns = [_column(tasks.get(n), n, sizes.get(n, 0)) for n in learned]
        scenario = owner.scenario
    try:
        figures = matrix.summary(rows, cells, asked, scenario, norms)
    except KeyError as error:
        raise NotFound(f"Version {asked} has an ancestor that is not there: {error}.") from error
    return {
        "version": asked,
        "rows": [{"version": r.version, "task": r.task, "parent": r.parent} for r in rows],
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


def _update_norm(manifest: dict[str, Any]) -> float | None:
    norm = (manifest.get("update_norm") or {}).get("backbone")
    return float(norm) if isinstance(norm, int | float) else None
