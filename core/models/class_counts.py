"""Classes of a model's newest version, with their images and tasks."""

from dataclasses import dataclass

from sqlalchemy import select

from core.database.session import Database
from core.database.tables import Task
from core.lineage import lineage
from core.lineage.coverage import list_taught_tasks
from core.requests.actor import Actor, find_model


@dataclass(frozen=True)
class ClassCount:
    """A class, the number of its images, and the tasks that have them, in order."""

    label: str
    images: int
    tasks: list[int]


@dataclass(frozen=True)
class ModelClassCounts:
    """Image counts of a model's classes, in the order of the newest version's outputs.

    Attributes:
        version: the lineage head; None: there is none yet.
    """

    version: int | None
    classes: list[ClassCount]


def read_model_class_counts(db: Database, actor: Actor, model: str) -> ModelClassCounts:
    """Read the classes that a model's newest lineage version knows, with their numbers of images.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        head = lineage.find_version_next_task_starts_from(session, row)
        if head is None:
            return ModelClassCounts(None, [])
        numbers = list_taught_tasks(head.manifest)
        query = select(Task.number, Task.classes).where(
            Task.model_id == row.id, Task.number.in_(numbers)
        )
        counts = {number: classes for number, classes in session.execute(query)}
    # A model of the scenario `task` has a head for each task, and no common list of classes.
    labels = head.manifest.classes or [
        name for number in numbers for name in sorted(counts.get(number, {}))
    ]
    classes = []
    for label in dict.fromkeys(labels):
        owners = [number for number in numbers if label in counts.get(number, {})]
        images = sum(counts[number][label] for number in owners)
        classes.append(ClassCount(label, images, owners))
    return ModelClassCounts(head.number, classes)
