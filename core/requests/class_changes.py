"""What an update did to each class: right answers of a version beside those of its parent."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Model, Result
from core.line.coverage import taught
from core.requests.actor import Actor, find_model
from core.requests.versions import find_version

_Counts = dict[tuple[int, str], list[int]]
"""(task, label) → [right answers, images]."""


@dataclass(frozen=True)
class ClassChange:
    """Right answers of a class, of `images`: now, and before by the parent (None: it was not taught it).

    `task`: whose class it is, where a label means another class in each task.
    """

    label: str
    task: int | None
    images: int
    now: int
    before: int | None

    @property
    def change(self) -> float | None:
        """What the share of right answers rose by; None: the class is new."""
        return None if self.before is None else (self.now - self.before) / self.images


@dataclass(frozen=True)
class ClassChanges:
    """All classes of a version, those that lost most first and new ones last."""

    version: int
    parent: int | None
    classes: list[ClassChange]

    @property
    def worse(self) -> list[ClassChange]:
        """Those of which fewer images are answered right than by the parent."""
        return [one for one in self.classes if one.before is not None and one.now < one.before]

    @property
    def better(self) -> list[ClassChange]:
        """Those of which more are."""
        return [one for one in self.classes if one.before is not None and one.now > one.before]

    @property
    def new(self) -> list[ClassChange]:
        """Those that the parent was not taught."""
        return [one for one in self.classes if one.before is None]


def class_changes(
    db: Database, actor: Actor, model: str, version: int, *, task: int | None = None
) -> ClassChanges:
    """What `version` changed of each class on the held-out images of its tasks, or of `task` alone.

    Raises:
        NotFound: the caller sees no such model or version.
        WrongState: the model has no version yet.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        row = find_version(session, owner, str(version))
        of_these = taught(row.manifest) if task is None else [task]
        now, before, known = _counts(session, owner, row.number, of_these), _Counts(), set[int]()
        if row.parent is not None:
            before = _counts(session, owner, row.parent, of_these)
            known = set(taught(find_version(session, owner, str(row.parent)).manifest))
        return ClassChanges(row.number, row.parent, _compared(now, before, known, owner.scenario == "task"))


def _compared(now: _Counts, before: _Counts, known: set[int], apart: bool) -> list[ClassChange]:
    """Both on the same images: of a class that the parent knew, those of tasks on which both were measured.

    known: tasks that the parent was taught. apart: a label means another class in each task.
    """
    old = {(task if apart else None, label) for task, label in before if task in known}
    sums: dict[tuple[int | None, str], list[int]] = {}
    for (task, label), (right, total) in now.items():
        key = (task if apart else None, label)
        had = before.get((task, label))
        if key in old and had is None:
            continue
        of_class = sums.setdefault(key, [0, 0, 0])
        for place, count in enumerate((right, total, had[0] if had else 0)):
            of_class[place] += count
    found = [
        ClassChange(label, task, total, right, had if (task, label) in old else None)
        for (task, label), (right, total, had) in sums.items()
        if total
    ]
    return sorted(found, key=lambda one: (one.before is None, one.change or 0.0, one.label, one.task or 0))


def _counts(session: Session, model: Model, version: int, tasks: Sequence[int]) -> _Counts:
    query = select(Result.task, Result.per_class).where(
        Result.model_id == model.id, Result.version == version, Result.task.in_(tasks)
    )
    return {
        (task, label): counts
        for task, per_class in session.execute(query)
        for label, counts in per_class.items()
    }
