"""Predictions of two versions on the tasks that both cover, read as labels.

A version names classes by rows of a head: its own growing head, the head of a task in the task
scenario, or the model's head in the data scenario. Here all rows become numbers of one vocabulary,
so that labels are compared.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.manifest import Manifest
from core.contract.responses.versions.compare import LeftOut
from core.database.label_names import order_task_labels_by_dataset_number
from core.database.session import Database
from core.database.tables import Model, Task, Version, VersionTaskResult
from core.errors import NotFound, ObjectGone, StoredObjectDamaged, VersionPredictionsNotStored
from core.ingest.dataset import memory_map_image_dataset
from core.ingest.stored_predictions import TaskPredictionsPlaceInBlob, read_encrypted_predictions
from core.requests.actor import Actor, find_model, translate_deleted_file_errors
from core.requests.classification_only import require_classification_model
from core.requests.timestamps import format_rfc3339
from core.retention import damage
from core.storage import Blobs
from core.versions.versions import find_version

Used = TypeVar("Used")
Ids = npt.NDArray[np.int64]
_NAMED = 100
"""Maximum number of cells that an error lists."""


@dataclass(frozen=True)
class VersionToCompare:
    """One of the two versions in a comparison: its number, parent, task, status and manifest."""

    number: int
    parent: int | None
    task: int | None
    status: str
    manifest: Manifest


@dataclass(frozen=True)
class TaskToCompare:
    """A task that a version comparison covers: the stored predictions of both versions on it.

    Attributes:
        number: number of the task.
        name: name of the task, if it has one.
        labels: labels that the numbers of its dataset mean.
        held_out: digest of the blob with the held-out images.
        a, b: digests of the blobs with the predictions of each version.
        key: key that reads the predictions.
    """

    number: int
    name: str | None
    labels: list[str]
    held_out: str
    a: str
    b: str
    key: str | None


@dataclass(frozen=True)
class ComparedVersionPair:
    """The two versions in a comparison, with the tasks that both cover.

    Attributes:
        model: id of the model.
        scenario: scenario of the model.
        classes: fixed classes of the model, if it has any.
        a, b: the versions.
        tasks: tasks that are compared.
        left_out: other tasks that at least one of the versions was measured on.
    """

    model: str
    scenario: str
    classes: list[str]
    a: VersionToCompare
    b: VersionToCompare
    tasks: list[TaskToCompare]
    left_out: list[LeftOut]


@dataclass(frozen=True)
class ComparedTaskPredictions:
    """True labels and both versions' predicted labels for the images of a task.

    Attributes:
        task: the task.
        truth: true labels as numbers of the vocabulary, int64 [N].
        a, b: labels predicted by each version, int64 [N].
        p_a, p_b: probabilities of these predictions, float16 [N].
    """

    task: TaskToCompare
    truth: Ids
    a: Ids
    b: Ids
    p_a: npt.NDArray[np.float16]
    p_b: npt.NDArray[np.float16]


class SharedLabelNumbering:
    """A mapping from class labels to consecutive numbers, shared by the versions in a comparison.

    Each task has its own numbers where a label means a different class in each task (`apart`).
    """

    def __init__(self, apart: bool) -> None:
        self.apart = apart
        self.names: list[tuple[int | None, str]] = []
        self._number: dict[tuple[int | None, str], int] = {}

    def convert_labels_to_numbers(self, task: int, labels: list[str]) -> Ids:
        """Return the number of each label in the common vocabulary of two versions, int64 [N]."""
        return np.array(
            [self._number_label(task if self.apart else None, label) for label in labels],
            np.int64,
        )

    def _number_label(self, task: int | None, label: str) -> int:
        number = self._number.setdefault((task, label), len(self.names))
        if number == len(self.names):
            self.names.append((task, label))
        return number


def load_version_pair_to_compare(
    db: Database, actor: Actor, model: str, a: str, b: str, task: int | None
) -> ComparedVersionPair:
    """Load two versions to compare, with all tasks that both have predictions for or only the
    requested one.

    Args:
        a, b: versions, by number or alias.

    Raises:
        NotFound: the caller sees no such model, version or task, or the task's data was deleted.
        Gone: the model retains only counts of the task's held-out images.
        VersionPredictionsNotStored: no task can be compared, or the requested one cannot.
        StoredObjectDamaged: a file of the task is known to be damaged.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        require_classification_model(owner, "Comparisons image by image")
        sides = [
            _make_version_to_compare(find_version(session, owner, version)) for version in (a, b)
        ]
        cells = [
            _find_stored_prediction_digests(session, owner, side.number, task) for side in sides
        ]
        # The requested task too, so that a refusal can say why it is not compared.
        numbers = set(cells[0]) | set(cells[1]) | ({task} if task is not None else set())
        query = select(Task).where(Task.model_id == owner.id, Task.number.in_(numbers))
        tasks = {one.number: one for one in session.scalars(query)}
        if task is not None:
            _require_held_out_images_retained(owner, tasks.get(task), task)
        compared, left_out = _separate_comparable_and_left_out_tasks(owner, tasks, sides, cells)
        missing = [one for one in left_out if one["reason"] == "answers_missing"]
        if missing and not compared:
            raise _make_missing_predictions_error(owner, missing)
        if task is not None and not compared:
            raise VersionPredictionsNotStored(
                left_out[0]["detail"],
                extra={"missing": _list_version_and_task_without_predictions(left_out)},
            )
        keys = [
            Blobs.make_blob_key(digest)
            for one in compared
            for digest in (one.held_out, one.a, one.b)
        ]
        # In portions, since SQLite limits the number of bound values.
        for start in range(0, len(keys), _NAMED):
            damage.require_undamaged_model_objects(session, owner.id, keys[start : start + _NAMED])
        classes = list(owner.classes or [])
        return ComparedVersionPair(
            owner.id, owner.scenario, classes, sides[0], sides[1], compared, left_out
        )


def run_comparison_skipping_deleted_tasks(
    db: Database,
    actor: Actor,
    pair: ComparedVersionPair,
    task: int | None,
    use: Callable[[ComparedVersionPair], Used],
) -> Used:
    """Run a comparison of two versions; if a task's data is deleted meanwhile, retry without that
    task.

    Raises:
        NotFound, Gone, VersionPredictionsNotStored: see `load_version_pair_to_compare`; no task remains.
        StoredObjectDamaged: a file is damaged; the message says which one and what to do.
    """
    while True:
        try:
            with translate_deleted_file_errors(db, actor, pair.model):
                return use(pair)
        except StoredObjectDamaged:
            remaining = load_version_pair_to_compare(
                db, actor, pair.model, str(pair.a.number), str(pair.b.number), task
            )
            # The same tasks are still there, so the file is really damaged.
            if remaining.tasks == pair.tasks:
                raise
            pair = remaining


def iterate_task_predictions_of_both_versions(
    blobs: Blobs, pair: ComparedVersionPair, words: SharedLabelNumbering
) -> Iterator[ComparedTaskPredictions]:
    """Yield the stored predictions of both versions for one task after another.

    Raises:
        StoredObjectDamaged: a file is missing or damaged.
    """
    for task in pair.tasks:
        _, labels = memory_map_image_dataset(blobs.fetch_verified_file(task.held_out))
        truth = words.convert_labels_to_numbers(task.number, task.labels)[labels]
        (a, p_a), (b, p_b) = (
            _read_stored_predictions(
                blobs,
                words.convert_labels_to_numbers(
                    task.number, _list_output_row_classes(pair, side, task)
                ),
                TaskPredictionsPlaceInBlob(side.number, task.number, task.key),
                digest,
            )
            for side, digest in ((pair.a, task.a), (pair.b, task.b))
        )
        # Each file is as it was stored, so a difference means that a row refers to a wrong one.
        if not len(truth) == len(a) == len(b):
            raise StoredObjectDamaged(
                f"The answers on task {task.number} are of {len(a)} and {len(b)} images, and it "
                f"has {len(truth)}.",
                extra={"object": Blobs.make_blob_key(task.a if len(a) != len(truth) else task.b)},
            )
        yield ComparedTaskPredictions(task, truth, a, b, p_a, p_b)


def _read_stored_predictions(
    blobs: Blobs, classes: Ids, location: TaskPredictionsPlaceInBlob, digest: str
) -> tuple[Ids, npt.NDArray[np.float16]]:
    """Read a version's stored predictions: labels as int64 [N] and probabilities as float16 [N].

    Raises:
        StoredObjectDamaged: the file is damaged or names a row that the head does not have.
    """
    rows, probabilities = read_encrypted_predictions(blobs.fetch_verified_file(digest), location)
    # numpy would count a negative row from the end, and return a wrong class without an error.
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(classes):
        raise StoredObjectDamaged(
            f"Answers on task {location.task} name row {int(rows.max())} of a head with "
            f"{len(classes)} classes.",
            extra={"object": Blobs.make_blob_key(digest)},
        )
    return classes[rows], probabilities


def _list_output_row_classes(
    pair: ComparedVersionPair, side: VersionToCompare, task: TaskToCompare
) -> list[str]:
    """Return the class labels of a version's output rows for a task."""
    if pair.scenario == "task":
        head = side.manifest.find_head_entry(task.number)
        return list(head.classes) if head is not None else []
    # version 0 of the data scenario may name no classes
    return list(side.manifest.classes or pair.classes)


def _make_version_to_compare(row: Version) -> VersionToCompare:
    return VersionToCompare(row.number, row.parent, row.task_number, row.status, row.manifest)


def _find_stored_prediction_digests(
    session: Session, model: Model, version: int, task: int | None
) -> dict[int, str | None]:
    """Return task → digest of a version's stored predictions, for all tasks on which it was
    measured.
    """
    query = select(VersionTaskResult.task, VersionTaskResult.answers).where(
        VersionTaskResult.model_id == model.id, VersionTaskResult.version == version
    )
    if task is not None:
        query = query.where(VersionTaskResult.task == task)
    return {number: digest for number, digest in session.execute(query)}


def _require_held_out_images_retained(model: Model, task: Task | None, number: int) -> None:
    """Raise an error unless the task exists and its held-out images are retained."""
    if task is None:
        raise NotFound(f"The model has no task {number}.")
    if task.data_deleted_at is not None:
        raise NotFound(
            f"The data of task {number} was deleted on {format_rfc3339(task.data_deleted_at)}."
        )
    if task.held_out_deleted_at is not None:
        raise ObjectGone(_explain_deleted_predictions(model, task))


def _explain_deleted_predictions(model: Model, task: Task) -> str:
    """Explain why predictions on a task are no longer stored."""
    why = (
        'the model keeps counts of held-out images alone ("held_out": "counts")'
        if model.held_out == "counts"
        else "its batch was given up"
    )
    return f"The held-out images of task {task.number} are not kept, and so no answers: {why}."


def _separate_comparable_and_left_out_tasks(
    model: Model,
    tasks: Mapping[int, Task],
    sides: list[VersionToCompare],
    cells: list[dict[int, str | None]],
) -> tuple[list[TaskToCompare], list[LeftOut]]:
    """Split the tasks of two versions into those that can be compared and those left out."""
    comparable: list[TaskToCompare] = []
    left_out: list[LeftOut] = []
    for number, task in sorted(tasks.items()):
        a, b = (side_cells.get(number) for side_cells in cells)
        held_out = task.held_out_sha256
        if (
            a is not None
            and b is not None
            and held_out is not None
            and task.held_out_deleted_at is None
        ):
            labels = order_task_labels_by_dataset_number(model, task.classes)
            comparable.append(
                TaskToCompare(number, task.name, labels, held_out, a, b, task.answers_key)
            )
        else:
            left_out.append(_build_left_out_task_entry(model, task, sides, cells))
    return comparable, left_out


def _build_left_out_task_entry(
    model: Model, task: Task, sides: list[VersionToCompare], cells: list[dict[int, str | None]]
) -> LeftOut:
    """Build the response entry for a task left out of a version comparison, with the reason."""
    number = task.number
    # Deletions first: they also explain why a version was not measured.
    if task.data_deleted_at is not None:
        at = format_rfc3339(task.data_deleted_at)
        return {
            "task": number,
            "reason": "data_deleted",
            "versions": [],
            "detail": f"Its data was deleted on {at}.",
        }
    if task.held_out_deleted_at is not None:
        return {
            "task": number,
            "reason": "counts_only",
            "versions": [],
            "detail": _explain_deleted_predictions(model, task),
        }
    pairs = list(zip(sides, cells, strict=True))
    unmeasured = sorted({side.number for side, side_cells in pairs if number not in side_cells})
    if unmeasured:
        versions_text = " and ".join(f"version {version}" for version in unmeasured)
        text = f"Task {number} is not answered by {versions_text}: nothing was measured there."
        return {"task": number, "reason": "not_measured", "versions": unmeasured, "detail": text}
    lacking = sorted({side.number for side, side_cells in pairs if side_cells[number] is None})
    text = " ".join(_explain_missing_predictions(model, version, number) for version in lacking)
    return {"task": number, "reason": "answers_missing", "versions": lacking, "detail": text}


def _explain_missing_predictions(model: Model, version: int, task: int) -> str:
    """Explain why a version has no stored predictions on a task, and how to get them."""
    sentence = (
        f"Version {version} has no predictions on task {task}: it was measured before "
        f"predictions were stored."
    )
    if version == model.head:
        return (
            f"{sentence} The next job makes and stores them: send a batch "
            f"(POST /v1/models/{model.name}/tasks)."
        )
    return (
        f"{sentence} Later versions have them. A job stores them only for version {model.head}, "
        "from which the lineage continues: compare versions that were learned since."
    )


def _make_missing_predictions_error(
    model: Model, left_out: list[LeftOut]
) -> VersionPredictionsNotStored:
    """Return the error for a comparison of versions without stored predictions."""
    versions = sorted({version for one in left_out for version in one["versions"]})
    texts = [
        _explain_missing_predictions(
            model, version, next(o["task"] for o in left_out if version in o["versions"])
        )
        for version in versions
    ]
    more = f" The same holds for {len(left_out) - 1} more tasks." if len(left_out) > 1 else ""
    return VersionPredictionsNotStored(
        " ".join(texts) + more,
        extra={"missing": _list_version_and_task_without_predictions(left_out)},
    )


def _list_version_and_task_without_predictions(left_out: list[LeftOut]) -> list[dict[str, int]]:
    cells = [
        {"version": version, "task": one["task"]} for one in left_out for version in one["versions"]
    ]
    return cells[:_NAMED]
