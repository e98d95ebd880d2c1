"""Effect of an update on each class: correct predictions of a version and of its parent."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.tables import Model, VersionTaskResult
from core.lineage.coverage import list_taught_tasks
from core.requests.actor import Actor, find_model
from core.versions.versions import find_version

_Counts = dict[tuple[int, str], list[int]]
"""Correct predictions and images, [correct, images], by (task, label)."""


@dataclass(frozen=True)
class ClassAccuracyChange:
    """Correct predictions of a class by a version and by its parent, out of `images`.

    Attributes:
        label: name of the class.
        task: task of the class, if a label means a different class in each task.
        images: held-out images of the class.
        now: correct predictions of the version.
        before: correct predictions of the parent; None if the parent was not taught the class.
    """

    label: str
    task: int | None
    images: int
    now: int
    before: int | None

    @property
    def change(self) -> float | None:
        """Change of the class's accuracy from the parent to the version, in [-1, 1]; None for a new
        class.
        """
        return None if self.before is None else (self.now - self.before) / self.images


@dataclass(frozen=True)
class ClassAccuracyChanges:
    """Accuracy changes of all classes of a version: those that lost most first, new ones last."""

    version: int
    parent: int | None
    classes: list[ClassAccuracyChange]

    @property
    def worse(self) -> list[ClassAccuracyChange]:
        """Classes of which the version predicts fewer images correctly than its parent."""
        return [one for one in self.classes if one.before is not None and one.now < one.before]

    @property
    def better(self) -> list[ClassAccuracyChange]:
        """Classes of which the version predicts more images correctly than its parent."""
        return [one for one in self.classes if one.before is not None and one.now > one.before]

    @property
    def new(self) -> list[ClassAccuracyChange]:
        """Classes that the version knows and its parent does not."""
        return [one for one in self.classes if one.before is None]


def compare_class_accuracies_with_parent(
    db: Database, actor: Actor, model: str, version: int, *, task: int | None = None
) -> ClassAccuracyChanges:
    """Compare each class's accuracy in a version and its parent, on held-out images of its tasks or
    of `task`.

    Raises:
        NotFound: the caller sees no such model or version.
        WrongState: the model has no version yet.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        row = find_version(session, owner, str(version))
        tasks = list_taught_tasks(row.manifest) if task is None else [task]
        new_counts, old_counts, old_tasks = (
            _read_correct_counts_by_class(session, owner, row.number, tasks),
            _Counts(),
            set[int](),
        )
        if row.parent is not None:
            old_counts = _read_correct_counts_by_class(session, owner, row.parent, tasks)
            old_tasks = set(
                list_taught_tasks(find_version(session, owner, str(row.parent)).manifest)
            )
        return ClassAccuracyChanges(
            row.number,
            row.parent,
            _compare_class_counts(new_counts, old_counts, old_tasks, owner.scenario == "task"),
        )


def _compare_class_counts(
    now: _Counts, before: _Counts, parent_tasks: set[int], apart: bool
) -> list[ClassAccuracyChange]:
    """Compare by class the correct predictions of a version and of its parent on the same images.

    A class that the parent knew is compared on tasks on which both versions were measured.

    Args:
        parent_tasks: tasks that the parent was taught.
        apart: True if a label means a different class in each task.
    """
    parent_classes = {
        (task if apart else None, label) for task, label in before if task in parent_tasks
    }
    sums: dict[tuple[int | None, str], list[int]] = {}
    for (task, label), (right, total) in now.items():
        key = (task if apart else None, label)
        parent_count = before.get((task, label))
        # Images on which only the new version was measured would look like a gain.
        if key in parent_classes and parent_count is None:
            continue
        of_class = sums.setdefault(key, [0, 0, 0])
        for sum_index, count in enumerate((right, total, parent_count[0] if parent_count else 0)):
            of_class[sum_index] += count
    changes = [
        ClassAccuracyChange(
            label, task, total, right, parent_count if (task, label) in parent_classes else None
        )
        for (task, label), (right, total, parent_count) in sums.items()
        if total
    ]
    return sorted(
        changes, key=lambda one: (one.before is None, one.change or 0.0, one.label, one.task or 0)
    )


def _read_correct_counts_by_class(
    session: Session, model: Model, version: int, tasks: Sequence[int]
) -> _Counts:
    """Return the numbers of correct predictions and of images of a version by (task, label)."""
    query = select(VersionTaskResult.task, VersionTaskResult.per_class).where(
        VersionTaskResult.model_id == model.id,
        VersionTaskResult.version == version,
        VersionTaskResult.task.in_(tasks),
    )
    return {
        (task, label): counts
        for task, per_class in session.execute(query)
        for label, counts in per_class.items()
    }
