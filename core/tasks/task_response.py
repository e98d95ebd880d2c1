"""A task as responses show it: batch, newest job, standing, and accuracy then and now."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from core.contract.base import ADOPTED_VERSION
from core.contract.responses.task import TaskOut
from core.database.kinds import JobKind
from core.database.tables import Job, Model, Task, VersionTaskResult
from core.lineage import wording
from core.lineage.standing import TaskStanding, read_task_standings
from core.requests.timestamps import format_rfc3339
from core.versions.versions import find_newest_published_version_number


@dataclass(frozen=True)
class TaskAccuracyThenAndNow:
    """The newest version that a task made, and accuracies on the task then and now.

    Attributes:
        version: newest version that the task made; edits make versions of their own.
        accuracy_then: accuracy of that version on the task, in [0, 1].
        accuracy_now: accuracy of the newest published version on the task, in [0, 1].
    """

    version: int | None = None
    accuracy_then: float | None = None
    accuracy_now: float | None = None


NOT_LEARNED = TaskAccuracyThenAndNow()


def build_task_responses(session: Session, model: Model, tasks: Sequence[Task]) -> list[TaskOut]:
    """Return tasks in the JSON form of the API, with newest job, standing, and accuracy then and
    now.
    """
    newest: dict[str, Job] = {}
    published: dict[int, int] = {}
    ids = [task.id for task in tasks]
    # Ascending, so that the newest job and version of each task remain.
    for job in session.scalars(select(Job).where(Job.task_id.in_(ids)).order_by(Job.place)):
        newest[str(job.task_id)] = job
        # An edit's job has a task's place, and did not learn it.
        if job.version is not None and job.task_number is not None and job.kind != JobKind.EDIT:
            published[job.task_number] = job.version
    # No job has made the version that a classifier came as.
    published |= {
        task.number: ADOPTED_VERSION for task in tasks if task.belongs_to_adopted_classifier
    }
    where = read_task_standings(session, model.id, tasks)
    latest = find_newest_published_version_number(session, model.id)
    cells: dict[tuple[int, int], float] = {}
    published_cells = [(version, number) for number, version in published.items()]
    version_numbers = {latest, *published.values()} - {None}
    query = select(
        VersionTaskResult.version,
        VersionTaskResult.task,
        VersionTaskResult.correct,
        VersionTaskResult.total,
    ).where(
        VersionTaskResult.model_id == model.id,
        VersionTaskResult.version.in_(sorted(version_numbers, key=lambda v: v or 0)),
        VersionTaskResult.task.in_([t.number for t in tasks]),
        tuple_(VersionTaskResult.version, VersionTaskResult.task).in_(
            [*published_cells, *((latest, t.number) for t in tasks)]
        ),
    )
    for cell in session.execute(query):
        if cell.total:
            cells[cell.version, cell.task] = cell.correct / cell.total
    items = []
    for task in tasks:
        version = published.get(task.number)
        accuracy_then = cells.get((version, task.number)) if version is not None else None
        now = None
        if version is not None and latest is not None:
            # This holds after a deletion too: earlier cells remain, and later versions have none.
            now = cells.get((latest, task.number))
        items.append(
            task_to_json(
                model,
                task,
                newest.get(task.id),
                where[task.number],
                TaskAccuracyThenAndNow(version, accuracy_then, now),
            )
        )
    return items


def build_task_response(session: Session, model: Model, task: Task) -> TaskOut:
    """Return one task of a model in the JSON form of the API."""
    return build_task_responses(session, model, [task])[0]


def task_to_json(
    model: Model,
    task: Task,
    job: Job | None,
    standing: TaskStanding,
    learned: TaskAccuracyThenAndNow = NOT_LEARNED,
) -> TaskOut:
    """Convert a task to the JSON form of the API.

    Args:
        job: newest job of the task.
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
        "version": learned.version,
        "accuracy_when_learned": learned.accuracy_then,
        "accuracy_now": learned.accuracy_now,
        "training_data_until": format_rfc3339(
            wording.find_training_image_deletion_time(model, task)
        ),
        "can_relearn": wording.can_relearn_task(task),
        "data_deleted_at": format_rfc3339(task.data_deleted_at),
        "created_at": format_rfc3339(task.created_at),
        "warnings": list(task.warnings),
    }
