"""Tasks that a version was taught, and tasks and classes that it lacks.

`manifest.tasks` lists the tasks that a version was taught, in order. All code uses this list and
never the chain of parents: a version may some day have two parents, or have a task removed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.manifest import Manifest
from core.database.tables import Model, Task
from core.lineage.standing import (
    DEMANDED,
    TaskStanding,
    derive_task_standing,
    read_unfinished_job_states_by_task,
)

S = TaskStanding


@dataclass(frozen=True)
class MissingTasksAndClasses:
    """Tasks that a version lacks, and the classes that it therefore cannot predict."""

    tasks: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()


def list_taught_tasks(manifest: Manifest) -> list[int]:
    """List the tasks that a version was taught, in order, from its manifest."""
    return list(manifest.tasks)


def is_one_class_version(manifest: Manifest) -> bool:
    """Return True if a version knows only one class, and so always predicts it."""
    heads = [head.classes for head in manifest.heads or []]
    return sum(map(len, heads or [manifest.classes or []])) == 1


def list_taught_tasks_with_new_task(manifest: Manifest, number: int) -> list[int]:
    """List the tasks a version will be taught when it learns task `number` on top of a manifest's
    version.
    """
    tasks = list_taught_tasks(manifest)
    # A task that is learned again on top of itself is in the list already.
    return tasks if number in tasks else [*tasks, number]


def find_lacking_required_tasks_and_classes(
    session: Session, model: Model, tasks: Collection[int], *, again: bool
) -> MissingTasksAndClasses:
    """Find learned or rolled-back tasks that a version taught `tasks` lacks, with the lost classes.

    In the data scenario all tasks share the model's classes, so a class is lost only if no other
    task shows it.

    Args:
        again: True if the version's task was learned again. Tasks that will be learned again after
            it are then not required, since otherwise several tasks could never be brought back.
            Other versions must have them, because learning them may fail.
    """
    query = select(Task.number).where(Task.model_id == model.id, Task.standing.in_(DEMANDED))
    missing = set(session.scalars(query)) - set(tasks)
    if missing and again:
        missing -= read_unfinished_job_states_by_task(session, model.id).keys()
    if not missing:
        return MissingTasksAndClasses()
    labels_of_missing, known_labels = (
        _read_classes_by_task_number(session, model, missing),
        _merge_class_names(_read_classes_by_task_number(session, model, tasks)),
    )
    if model.scenario == "data":
        labels_of_missing = {
            number: labels for number, labels in labels_of_missing.items() if labels - known_labels
        }
    # With a head for each task, an equal label of another task is another class.
    labels = (
        _merge_class_names(labels_of_missing)
        if model.scenario == "task"
        else _merge_class_names(labels_of_missing) - known_labels
    )
    return MissingTasksAndClasses(tuple(sorted(labels_of_missing)), tuple(sorted(labels)))


PASSED_OVER = (S.ROLLED_BACK, S.SKIPPED)
"""Standings of tasks that later versions do not contain until these are learned again."""


def find_missing_rolled_back_or_skipped_tasks(
    session: Session, model: Model, tasks: Collection[int]
) -> list[tuple[Task, TaskStanding]]:
    """Find rolled-back and skipped tasks that a version taught `tasks` lacks, with their
    standings.
    """
    query = select(Task).where(Task.model_id == model.id, Task.standing.in_(PASSED_OVER))
    return select_missing_rolled_back_or_skipped_tasks(
        session, model, session.scalars(query.order_by(Task.number)), tasks
    )


def select_missing_rolled_back_or_skipped_tasks(
    session: Session, model: Model, passed_over: Iterable[Task], tasks: Collection[int]
) -> list[tuple[Task, TaskStanding]]:
    """Select the rolled-back and skipped tasks that a version taught `tasks` lacks, with their
    standings.
    """
    missing = [task for task in passed_over if task.number not in tasks]
    # Most versions lack nothing, which costs no further query.
    unfinished = read_unfinished_job_states_by_task(session, model.id) if missing else {}
    return [(task, derive_task_standing(task, unfinished.get(task.number))) for task in missing]


def _read_classes_by_task_number(
    session: Session, model: Model, numbers: Collection[int]
) -> dict[int, set[str]]:
    """Read the classes of each task by task number."""
    query = select(Task.number, Task.classes).where(
        Task.model_id == model.id, Task.number.in_(sorted(numbers))
    )
    return {number: set(classes) for number, classes in session.execute(query)}


def _merge_class_names(classes: Mapping[int, set[str]]) -> set[str]:
    """Merge the class names of all tasks without repetition."""
    return set().union(*classes.values()) if classes else set()
