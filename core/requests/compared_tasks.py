"""The answers of two versions on the tasks that both answer: which there are, and each read as labels.

A version names classes by rows of its head: of its own classes, which grow, of the task's head in the task scenario, of
the model's in the data scenario. Here all become numbers of one vocabulary, so that labels are compared.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import select
from sqlalchemy.orm import Session

from core import damage
from core.db.session import Database
from core.db.tables import Model, Result, Task, Version
from core.errors import AnswersMissing, Gone, NotFound, StoreCorrupt
from core.ingest.answers import Place, open_answers
from core.ingest.dataset import open_dataset
from core.protocol.answers.compare import LeftOut
from core.protocol.manifest import Manifest
from core.requests.actor import Actor, files_of, find_model
from core.requests.times import rfc3339
from core.requests.versions import find_version
from core.store import Blobs

Used = TypeVar("Used")
Ids = npt.NDArray[np.int64]
_NAMED = 100
"""Cells that an error lists."""


@dataclass(frozen=True)
class Side:
    """One of the versions."""

    number: int
    parent: int | None
    task: int | None
    status: str
    manifest: Manifest


@dataclass(frozen=True)
class ComparedTask:
    """A task on which the answers of both are kept: digests of blobs, and the labels that its dataset's
    numbers mean; `key` reads the answers."""

    number: int
    name: str | None
    labels: list[str]
    held_out: str
    a: str
    b: str
    key: str | None


@dataclass(frozen=True)
class Pair:
    """Two versions of a model, and the tasks that both answer; `left_out`: the others that at least one was
    measured on."""

    model: str
    scenario: str
    classes: list[str]
    a: Side
    b: Side
    tasks: list[ComparedTask]
    left_out: list[LeftOut]


@dataclass(frozen=True)
class Said:
    """A task's images: true labels and answers as numbers of the vocabulary, int64 [N], and probabilities
    float16 [N]."""

    task: ComparedTask
    truth: Ids
    a: Ids
    b: Ids
    p_a: npt.NDArray[np.float16]
    p_b: npt.NDArray[np.float16]


class Vocabulary:
    """Numbers for labels, from 0 on; with a task where each has classes of its own."""

    def __init__(self, apart: bool) -> None:
        self.apart = apart
        self.names: list[tuple[int | None, str]] = []
        self._number: dict[tuple[int | None, str], int] = {}

    def of(self, task: int, labels: list[str]) -> Ids:
        """The numbers of these labels."""
        return np.array([self._of(task if self.apart else None, label) for label in labels], np.int64)

    def _of(self, task: int | None, label: str) -> int:
        number = self._number.setdefault((task, label), len(self.names))
        if number == len(self.names):
            self.names.append((task, label))
        return number


def find(db: Database, actor: Actor, model: str, a: str, b: str, task: int | None) -> Pair:
    """The two versions, by number or alias, and the tasks that both answer, or `task` alone.

    Raises:
        NotFound: the caller sees no such model, version or task, or the task's data was deleted.
        Gone: the model keeps counts of the task's held-out images alone.
        AnswersMissing: no task can be compared, or not the one that is asked for.
        StoreCorrupt: a file of it is known to be damaged.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        sides = [_side(find_version(session, owner, version)) for version in (a, b)]
        cells = [_cells(session, owner, side.number, task) for side in sides]
        numbers = set(cells[0]) | set(cells[1]) | ({task} if task is not None else set())
        query = select(Task).where(Task.model_id == owner.id, Task.number.in_(numbers))
        tasks = {one.number: one for one in session.scalars(query)}
        if task is not None:
            _require(owner, tasks.get(task), task)
        found, left_out = _apart(owner, tasks, sides, cells)
        missing = [one for one in left_out if one["reason"] == "answers_missing"]
        if missing and not found:
            raise _missing(owner, missing)
        if task is not None and not found:
            raise AnswersMissing(left_out[0]["detail"], extra={"missing": _listed(left_out)})
        keys = [Blobs.key(digest) for one in found for digest in (one.held_out, one.a, one.b)]
        for start in range(0, len(keys), _NAMED):
            damage.refuse_any(session, owner.id, keys[start : start + _NAMED])
        classes = list(owner.classes or [])
        return Pair(owner.id, owner.scenario, classes, sides[0], sides[1], found, left_out)


def used(db: Database, actor: Actor, pair: Pair, task: int | None, use: Callable[[Pair], Used]) -> Used:
    """What `use` makes of a pair; anew with what is left, if data was deleted between its rows and its files.

    Raises:
        NotFound, Gone, AnswersMissing: as `find`, where nothing is left.
        StoreCorrupt: a file is damaged; it says which, and what to do.
    """
    while True:
        try:
            with files_of(db, actor, pair.model):
                return use(pair)
        except StoreCorrupt:
            left = find(db, actor, pair.model, str(pair.a.number), str(pair.b.number), task)
            if left.tasks == pair.tasks:
                raise
            pair = left


def read(blobs: Blobs, pair: Pair, words: Vocabulary) -> Iterator[Said]:
    """The answers of both on one task after the other.

    Raises:
        StoreCorrupt: a file is missing or damaged.
    """
    for task in pair.tasks:
        _, labels = open_dataset(blobs.fetch(task.held_out))
        truth = words.of(task.number, task.labels)[labels]
        (a, p_a), (b, p_b) = (
            _answers(
                blobs,
                words.of(task.number, _classes(pair, side, task)),
                Place(side.number, task.number, task.key),
                digest,
            )
            for side, digest in ((pair.a, task.a), (pair.b, task.b))
        )
        if not len(truth) == len(a) == len(b):
            raise StoreCorrupt(
                f"The answers on task {task.number} are of {len(a)} and {len(b)} images, and it has {len(truth)}.",
                extra={"object": Blobs.key(task.a if len(a) != len(truth) else task.b)},
            )
        yield Said(task, truth, a, b, p_a, p_b)


def _answers(blobs: Blobs, classes: Ids, place: Place, digest: str) -> tuple[Ids, npt.NDArray[np.float16]]:
    rows, probabilities = open_answers(blobs.fetch(digest), place)
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(classes):
        raise StoreCorrupt(
            f"Answers on task {place.task} name row {int(rows.max())} of a head with {len(classes)} classes.",
            extra={"object": Blobs.key(digest)},
        )
    return classes[rows], probabilities


def _classes(pair: Pair, side: Side, task: ComparedTask) -> list[str]:
    """What the rows of a version's answers on a task mean."""
    if pair.scenario == "task":
        head = side.manifest.head_of(task.number)
        return list(head.classes) if head is not None else []
    return list(side.manifest.classes or pair.classes)  # version 0 of the data scenario may name none


def _side(row: Version) -> Side:
    return Side(row.number, row.parent, row.task_number, row.status, row.manifest)


def _cells(session: Session, model: Model, version: int, task: int | None) -> dict[int, str | None]:
    """Task → digest of the version's answers, of all cells of its row."""
    query = select(Result.task, Result.answers).where(Result.model_id == model.id, Result.version == version)
    if task is not None:
        query = query.where(Result.task == task)
    return {number: answers for number, answers in session.execute(query)}


def _require(model: Model, task: Task | None, number: int) -> None:
    if task is None:
        raise NotFound(f"The model has no task {number}.")
    if task.data_deleted_at is not None:
        raise NotFound(f"The data of task {number} was deleted on {rfc3339(task.data_deleted_at)}.")
    if task.held_out_deleted_at is not None:
        raise Gone(_gone(model, task))


def _gone(model: Model, task: Task) -> str:
    why = (
        'the model keeps counts of held-out images alone ("held_out": "counts")'
        if model.held_out == "counts"
        else "its batch was given up"
    )
    return f"The held-out images of task {task.number} are not kept, and so no answers: {why}."


def _apart(
    model: Model, tasks: Mapping[int, Task], sides: list[Side], cells: list[dict[int, str | None]]
) -> tuple[list[ComparedTask], list[LeftOut]]:
    """The tasks that can be compared, and the others."""
    found: list[ComparedTask] = []
    left_out: list[LeftOut] = []
    for number, task in sorted(tasks.items()):
        a, b = (of.get(number) for of in cells)
        held_out = task.held_out_sha256
        if a is not None and b is not None and held_out is not None and task.held_out_deleted_at is None:
            labels = list(model.classes or []) if model.scenario == "data" else sorted(task.classes)
            found.append(ComparedTask(number, task.name, labels, held_out, a, b, task.answers_key))
        else:
            left_out.append(_left(model, task, sides, cells))
    return found, left_out


def _left(model: Model, task: Task, sides: list[Side], cells: list[dict[int, str | None]]) -> LeftOut:
    number = task.number
    if task.data_deleted_at is not None:
        at = rfc3339(task.data_deleted_at)
        return {
            "task": number,
            "reason": "data_deleted",
            "versions": [],
            "detail": f"Its data was deleted on {at}.",
        }
    if task.held_out_deleted_at is not None:
        return {"task": number, "reason": "counts_only", "versions": [], "detail": _gone(model, task)}
    pairs = list(zip(sides, cells, strict=True))
    unmeasured = sorted({side.number for side, of in pairs if number not in of})
    if unmeasured:
        said = " and ".join(f"version {version}" for version in unmeasured)
        text = f"Task {number} is not answered by {said}: nothing was measured there."
        return {"task": number, "reason": "not_measured", "versions": unmeasured, "detail": text}
    lacking = sorted({side.number for side, of in pairs if of[number] is None})
    text = " ".join(_why(model, version, number) for version in lacking)
    return {"task": number, "reason": "answers_missing", "versions": lacking, "detail": text}


def _why(model: Model, version: int, task: int) -> str:
    said = f"Version {version} has no answers on task {task}: it was measured before answers were kept."
    if version == model.head:
        return (
            f"{said} The next job asks it again, and they are kept then: send a batch "
            f"(POST /v1/models/{model.name}/tasks)."
        )
    return (
        f"{said} Later versions have them. Only version {model.head}, from which the line goes on, is asked again "
        "when a batch is learned: compare versions that were learned since."
    )


def _missing(model: Model, left_out: list[LeftOut]) -> AnswersMissing:
    versions = sorted({version for one in left_out for version in one["versions"]})
    texts = [
        _why(model, version, next(o["task"] for o in left_out if version in o["versions"]))
        for version in versions
    ]
    more = f" The same holds for {len(left_out) - 1} more tasks." if len(left_out) > 1 else ""
    return AnswersMissing(" ".join(texts) + more, extra={"missing": _listed(left_out)})


def _listed(left_out: list[LeftOut]) -> list[dict[str, int]]:
    cells = [{"version": version, "task": one["task"]} for one in left_out for version in one["versions"]]
    return cells[:_NAMED]
