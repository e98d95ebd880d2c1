"""What a version was taught, and what it lacks of what its model must not lose.

`manifest.tasks` names the tasks that a version was taught, in order. All code asks it, never the chain of parents: a
version may one day come from two, or have a task taken out.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.tables import Model, Task
from core.line.standing import DEMANDED, Standing, open_tasks, standing
from core.protocol.manifest import Manifest

S = Standing


@dataclass(frozen=True)
class Lost:
    """Tasks that a version must cover and does not, and the classes that it therefore cannot name."""

    tasks: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()


def taught(manifest: Manifest) -> list[int]:
    """The tasks that the version of this manifest was taught, in order."""
    return list(manifest.tasks)


def knows_one_class(manifest: Manifest) -> bool:
    """Return True if a version can give no other answer than one class."""
    heads = [head.classes for head in manifest.heads or []]
    return sum(map(len, heads or [manifest.classes or []])) == 1


def with_task(manifest: Manifest, number: int) -> list[int]:
    """What a version is taught that learns task `number` on top of the version of this manifest."""
    before = taught(manifest)
    return before if number in before else [*before, number]


def lost(session: Session, model: Model, tasks: Collection[int], *, again: bool) -> Lost:
    """What a version that was taught `tasks` lacks of what is learned or rolled back.

    In the data scenario every task has the model's classes, so that only a class that no other task shows is lost.

    Args:
        again: whether the version's task was learned again. Tasks that are to be learned again after it are
            not asked of it, or several could never be brought back; of all other versions they are, since
            learning them may fail.
    """
    query = select(Task.number).where(Task.model_id == model.id, Task.standing.in_(DEMANDED))
    missing = set(session.scalars(query)) - set(tasks)
    if missing and again:
        missing -= open_tasks(session, model.id).keys()
    if not missing:
        return Lost()
    of_lost, kept = _classes(session, model, missing), _labels(_classes(session, model, tasks))
    if model.scenario == "data":
        of_lost = {number: labels for number, labels in of_lost.items() if labels - kept}
    labels = _labels(of_lost) if model.scenario == "task" else _labels(of_lost) - kept
    return Lost(tuple(sorted(of_lost)), tuple(sorted(labels)))


PASSED_OVER = (S.ROLLED_BACK, S.SKIPPED)
"""Tasks that later versions do not contain, until they are learned again."""


def lacked(session: Session, model: Model, tasks: Collection[int]) -> list[tuple[Task, Standing]]:
    """Rolled back and skipped tasks that a version which was taught `tasks` does not contain, with where they
    stand now."""
    query = select(Task).where(Task.model_id == model.id, Task.standing.in_(PASSED_OVER))
    return lacked_of(session, model, session.scalars(query.order_by(Task.number)), tasks)


def lacked_of(
    session: Session, model: Model, passed_over: Iterable[Task], tasks: Collection[int]
) -> list[tuple[Task, Standing]]:
    """As `lacked`, of the model's tasks that were passed over, which the caller has read."""
    found = [task for task in passed_over if task.number not in tasks]
    unfinished = open_tasks(session, model.id) if found else {}
    return [(task, standing(task, unfinished.get(task.number))) for task in found]


def _classes(session: Session, model: Model, numbers: Collection[int]) -> dict[int, set[str]]:
    query = select(Task.number, Task.classes).where(
        Task.model_id == model.id, Task.number.in_(sorted(numbers))
    )
    return {number: set(classes) for number, classes in session.execute(query)}


def _labels(classes: Mapping[int, set[str]]) -> set[str]:
    return set().union(*classes.values()) if classes else set()
