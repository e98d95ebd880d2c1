"""A task in the contract's shape: its batch, its newest job, where it stands, and how well it was and is known."""

from collections.abc import Sequence

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from core.db.tables import Job, Model, Result, Task
from core.line import words
from core.line.standing import Standing, standings
from core.protocol.answers.task import TaskOut
from core.requests.times import rfc3339
from core.requests.versions import newest_published


def of_tasks(session: Session, model: Model, found: Sequence[Task]) -> list[TaskOut]:
    """Tasks with their newest job and how well they were and are known."""
    newest: dict[str, Job] = {}
    published: dict[int, int] = {}
    ids = [task.id for task in found]
    for job in session.scalars(select(Job).where(Job.task_id.in_(ids)).order_by(Job.place)):
        newest[str(job.task_id)] = job
        if job.version is not None and job.task_number is not None:
            published[job.task_number] = job.version
    where = standings(session, model.id, found)
    latest = newest_published(session, model.id)
    cells: dict[tuple[int, int], float] = {}
    published_cells = [(version, number) for number, version in published.items()]
    wanted = {latest, *published.values()} - {None}
    query = select(Result.version, Result.task, Result.correct, Result.total).where(
        Result.model_id == model.id,
        Result.version.in_(sorted(wanted, key=lambda v: v or 0)),
        Result.task.in_([t.number for t in found]),
        tuple_(Result.version, Result.task).in_([*published_cells, *((latest, t.number) for t in found)]),
    )
    for cell in session.execute(query):
        if cell.total:
            cells[cell.version, cell.task] = cell.correct / cell.total
    shown = []
    for task in found:
        version = published.get(task.number)
        learned = cells.get((version, task.number)) if version is not None else None
        now = None
        if version is not None and latest is not None:
            # Also after a deletion: it was measured before, and versions made since have no cell.
            now = cells.get((latest, task.number))
        shown.append(to_json(model, task, newest.get(task.id), where[task.number], learned, now, version))
    return shown


def shown(session: Session, model: Model, task: Task) -> TaskOut:
    """One task of a model as `read` answers it."""
    return of_tasks(session, model, [task])[0]


def to_json(
    model: Model,
    task: Task,
    job: Job | None,
    standing: Standing,
    learned: float | None = None,
    now: float | None = None,
    version: int | None = None,
) -> TaskOut:
    """One task.

    Args:
        job: the newest one of the task.
        learned, now: accuracy of the version that learned it, and of the newest published one.
        version: the newest that the task made.
    """
    return {
        "id": task.id,
        "number": task.number,
        "name": task.name,
        "sha256": task.sha256,
        "bytes": task.bytes,
        "classes": task.classes,
        "n_train": task.n_train,
        "n_held_out": task.n_held_out,
        "report": task.report,
        "job": job.id if job is not None else None,
        "state": str(job.state) if job is not None else None,
        "standing": str(standing),
        "recipe": job.recipe if job is not None else None,
        "version": version,
        "accuracy_when_learned": learned,
        "accuracy_now": now,
        "training_data_until": rfc3339(words.kept_until(model, task)),
        "can_relearn": words.can_relearn(task),
        "data_deleted_at": rfc3339(task.data_deleted_at),
        "created_at": rfc3339(task.created_at),
        "warnings": list(task.warnings),
    }
