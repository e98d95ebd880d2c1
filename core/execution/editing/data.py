"""Edited files and labels of the tasks of an edit, made before any of them is learned again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from core.contract.edit import TaskReportFactsChangedByEdit, TaskStateBeforeOrAfterEdit
from core.contract.manifest import LEAST_TEMPERATURE_IMAGES, Temperature
from core.contract.responses.task_image import Split
from core.database.label_names import order_task_labels_by_dataset_number
from core.database.tables import Task
from core.edits import record, rewrite
from core.edits.operation_checks import EditChanges, make_emptied_task_error
from core.edits.rewrite import EditedLabels, StoredTaskFeatures
from core.errors import Invalid, StoredObjectDamaged
from core.execution.editing.edit_rows import RowsForEditJob
from core.storage import Blobs


@dataclass(frozen=True)
class EditedTaskData:
    """The data of one task after an edit: labels, files, and features.

    Attributes:
        before, after: what the task's row has before and after the edit.
        names: labels that the numbers of its datasets stand for, after the edit.
        train: labels of its training images; None where only names change and the images are gone.
        held_out: labels of its held-out images, if these are retained.
        rows: kept features of its training images; None for a task learned from images.
        files: edited files by name: train, held_out.
        stored: new files by digest, which stay in the job's folder.
        removed_paths: paths of removed images in their batch, as far as they are stored.
    """

    before: TaskStateBeforeOrAfterEdit
    after: TaskStateBeforeOrAfterEdit
    names: list[str]
    train: EditedLabels | None
    held_out: EditedLabels | None
    rows: StoredTaskFeatures | None
    files: dict[str, Path]
    removed_paths: list[str] = field(default_factory=list)
    stored: dict[str, Path] = field(default_factory=dict)

    def build_task_report_facts_changed_by_edit(
        self, changes: EditChanges
    ) -> TaskReportFactsChangedByEdit:
        """Return the figures of the edited data that the task's report shows."""
        held_out = None if self.held_out is None else dict(Counter(self.held_out.remaining_labels))
        touched, removed = (
            (None, [])
            if self.train is None
            else self.train.list_touched_and_removed_rows(changes.classes)
        )
        return TaskReportFactsChangedByEdit(
            classes=self.after.classes, held_out=held_out, touched=touched, removed=removed
        )

    def list_trained_classes(self) -> set[str]:
        """Return the classes of which the edited task has training images."""
        return set(self.after.classes if self.train is None else self.train.remaining_labels)


def write_and_store_edited_task_data(
    blobs: Blobs, facts: RowsForEditJob, number: int, folder: Path
) -> EditedTaskData:
    """Apply an edit to one task's data, store the new files, and describe them.

    Args:
        folder: for the files.

    Raises:
        Invalid: no training image would be left, or features of an earlier release do not say which
            image each belongs to.
    """
    folder.mkdir(parents=True)
    task, changes = facts.tasks[number], facts.changes
    before = record.build_task_state_for_edit_journal(task)
    names = order_task_labels_by_dataset_number(facts.model, task.classes)
    rows = (
        _read_stored_features_of_task(blobs, facts, number)
        if facts.relearns_from_features
        else None
    )
    train_path = None if before.train is None else blobs.fetch_verified_file(before.train)
    train = _apply_edit_to_training_labels(facts, number, train_path, rows, names)
    held_out_path = (
        None
        if before.held_out is None or not task.n_held_out
        else blobs.fetch_verified_file(before.held_out)
    )
    held_out = None
    if held_out_path is not None:
        labels = rewrite.read_dataset_labels(held_out_path, names)
        edits = changes.images.get((number, "held_out"), {})
        held_out = rewrite.apply_edit_to_labels(labels, edits, changes.classes)
    if number in changes.dropped:
        train, held_out = (
            _build_labels_with_all_images_removed(part) for part in (train, held_out)
        )
    elif train is not None and not train.remaining_labels:
        raise make_emptied_task_error(number)
    if number in changes.dropped:
        emptied_state = TaskStateBeforeOrAfterEdit(
            number=number, classes={}, n_train=0, n_held_out=0
        )
        sized = before.model_copy(update={"bytes": {}})
        paths = _read_removed_image_paths(blobs, before.traces, (train, held_out), changes)
        return EditedTaskData(sized, emptied_state, names, train, held_out, rows, {}, paths)
    classes = _count_images_per_edited_label(task, changes, train, held_out)
    new_names = order_task_labels_by_dataset_number(facts.model, classes)
    files: dict[str, Path] = {}
    stored: dict[str, Path] = {}
    digests: dict[Split | str, str | None] = {"train": before.train, "held_out": before.held_out}
    sizes: dict[str, int] = {}
    parts: tuple[tuple[Split, Path | None, EditedLabels | None], ...] = (
        ("train", train_path, train),
        ("held_out", held_out_path, held_out),
    )
    for split, path, edited in parts:
        if path is None or edited is None:
            continue
        files[split] = path
        # Labels are stored as positions in the list of names, so new names alone change the file.
        if edited.is_changed or new_names != names:
            files[split] = folder / f"{split}.safetensors"
            rewrite.write_edited_dataset(path, files[split], edited, new_names)
            digest, sizes[split] = blobs.put_file(files[split], link=True)
            digests[split], stored[digest] = digest, files[split]
    paths = _read_removed_image_paths(blobs, before.traces, (train, held_out), changes)
    traces = before.traces
    if traces is not None:
        target = folder / "traces.safetensors"
        traces, sizes["traces"] = _store_edited_fingerprint_file(
            blobs, traces, target, (train, held_out), changes
        )
        if traces is not None:
            stored[traces] = target
    n_train, n_held_out = _count_task_images_after_edit(facts, number, train, held_out)
    after = TaskStateBeforeOrAfterEdit(
        number=number,
        classes=classes,
        n_train=n_train,
        n_held_out=n_held_out,
        train=digests["train"],
        held_out=digests["held_out"],
        traces=traces,
        bytes={name: size for name, size in sizes.items() if size},
    )
    former = {
        split: path.stat().st_size
        for split, path in (("train", train_path), ("held_out", held_out_path))
        if path is not None
    }
    return EditedTaskData(
        before.model_copy(update={"bytes": {**former, "traces": task.traces_bytes or 0}}),
        after,
        new_names,
        train,
        held_out,
        rows,
        files,
        paths,
        stored,
    )


def _build_labels_with_all_images_removed(part: EditedLabels | None) -> EditedLabels | None:
    return None if part is None else EditedLabels(part.before, [None] * len(part.before))


def _read_stored_features_of_task(
    blobs: Blobs, facts: RowsForEditJob, number: int
) -> StoredTaskFeatures:
    main, rest = (
        facts.features.get(name) for name in rewrite.get_names_of_task_feature_parts(number)
    )
    assert main is not None, "checked when the facts were read"
    rows = rewrite.read_stored_task_features(
        number,
        blobs.fetch_verified_file(main.sha256),
        None if rest is None else blobs.fetch_verified_file(rest.sha256),
    )
    numbers = facts.numbers.find_class_number_map(main.version_id)
    if numbers is None:
        return rows
    return replace(rows, classes=np.array(numbers, np.int64)[rows.classes])


def _apply_edit_to_training_labels(
    facts: RowsForEditJob,
    number: int,
    path: Path | None,
    rows: StoredTaskFeatures | None,
    names: Sequence[str],
) -> EditedLabels | None:
    """Apply an edit to the labels of a task's training images, in learning order."""
    if rows is None and path is None:
        return None
    edits = facts.changes.images.get((number, "train"), {})
    if rows is None:
        assert path is not None
        return rewrite.apply_edit_to_labels(
            rewrite.read_dataset_labels(path, names), edits, facts.changes.classes
        )
    head_classes = facts.head.manifest.classes or []
    labels = [head_classes[row] for row in rows.classes.tolist()]
    if len(labels) != (facts.tasks[number].n_train or 0):
        raise Invalid(
            f"The version keeps features of {len(labels)} of the {facts.tasks[number].n_train} "
            f"training images of task {number}; an edit needs all of them."
        )
    if not rows.is_ordered and (edits or path is not None):
        raise Invalid(
            f"The features of task {number} were stored by an earlier release, which did not store "
            f"which image each belongs to. Only its classes can be edited, once its training "
            f"images are gone."
        )
    return rewrite.apply_edit_to_labels(labels, edits, facts.changes.classes)


def _count_task_images_after_edit(
    facts: RowsForEditJob, number: int, train: EditedLabels | None, held_out: EditedLabels | None
) -> tuple[int, int | None]:
    """Return the numbers of a task's training and held-out images after the edit.

    Where images are gone, those of dropped classes are known by their numbers alone.
    """
    task, changes = facts.tasks[number], facts.changes
    dropped = [name for name in task.classes if changes.classes.get(name, name) is None]
    stored = facts.held_out_counts.get(number, {})
    measured = Counter(stored if held_out is None else Counter(held_out.before))
    n_train, n_held_out = task.n_train or 0, task.n_held_out
    for name in dropped:
        n_train -= task.classes[name] - measured[name]
        n_held_out = None if n_held_out is None else n_held_out - measured[name]
    return (
        max(0, n_train) if train is None else len(train.remaining_labels),
        n_held_out if held_out is None else len(held_out.remaining_labels),
    )


def _count_images_per_edited_label(
    task: Task, changes: EditChanges, train: EditedLabels | None, held_out: EditedLabels | None
) -> dict[str, int]:
    """Count the images of each label after the edit."""
    if train is not None and (held_out is not None or not task.n_held_out):
        labels = [
            *train.remaining_labels,
            *(held_out.remaining_labels if held_out is not None else ()),
        ]
        counted = Counter(labels)
        return {name: counted[name] for name in sorted(counted)}
    # Labels of held-out images that were only counted are known by their numbers alone.
    counts: dict[str, int] = {}
    for name, count in task.classes.items():
        new = changes.classes.get(name, name)
        if new is not None:
            counts[new] = counts.get(new, 0) + count
    labels_before_and_after = ([], []) if train is None else (train.before, train.after)
    for old, label in zip(*labels_before_and_after, strict=True):
        moved = changes.classes.get(old, old)
        if label != moved:
            if moved is not None:
                counts[moved] -= 1
            if label is not None:
                counts[label] = counts.get(label, 0) + 1
    # A classifier that came with its model has classes without images.
    empty = {changes.classes.get(name, name) for name, count in task.classes.items() if not count}
    return {name: count for name, count in sorted(counts.items()) if count or name in empty}


def _read_removed_image_paths(
    blobs: Blobs,
    digest: str | None,
    parts: tuple[EditedLabels | None, EditedLabels | None],
    changes: EditChanges,
) -> list[str]:
    """Read the paths of images that the edit removes, as far as trace files list them.

    Args:
        parts: labels of the training and held-out part; None where only the traces have them.
    """
    if digest is None:
        return []
    try:
        path = blobs.fetch_verified_file(digest)
        train, held_out = _apply_edit_to_fingerprint_labels(path, parts, changes)
        return rewrite.read_paths_of_removed_images(path, train, held_out)
    except (StoredObjectDamaged, ValueError):  # the damage has been recorded; nothing needs them
        return []


def _apply_edit_to_fingerprint_labels(
    traces: Path, parts: tuple[EditedLabels | None, EditedLabels | None], changes: EditChanges
) -> tuple[EditedLabels, EditedLabels]:
    stored = rewrite.read_labels_from_fingerprint_file(traces)
    train, held_out = (
        rewrite.apply_edit_to_labels(labels, {}, changes.classes) if part is None else part
        for labels, part in zip(stored, parts, strict=True)
    )
    return train, held_out


def _store_edited_fingerprint_file(
    blobs: Blobs,
    digest: str,
    target: Path,
    parts: tuple[EditedLabels | None, EditedLabels | None],
    changes: EditChanges,
) -> tuple[str | None, int]:
    """Store edited traces (image hashes); return digest and size, or None and 0 if they cannot be
    edited.

    Args:
        target: the file to write.
        parts: labels of the training and held-out part; None where only the traces have them.
    """
    try:
        path = blobs.fetch_verified_file(digest)
        train, held_out = _apply_edit_to_fingerprint_labels(path, parts, changes)
        if not rewrite.write_edited_fingerprint_file(path, target, train, held_out):
            return None, 0
    except (StoredObjectDamaged, ValueError):  # the damage has been recorded; nothing needs them
        return None, 0
    return blobs.put_file(target, link=True)


def choose_fallback_temperature(
    facts: RowsForEditJob,
    edited: Mapping[int, EditedTaskData],
    taught: Sequence[int],
    of_start: Temperature | None,
) -> Temperature | None:
    """Choose the softmax temperature of an edited version that has too few images to fit one.

    With too few held-out images, no version that was sent the corrected batches has fitted one. The
    start's was fitted to images that the edit may have removed.

    Args:
        edited: number of a task → its edited data.
        taught: numbers of all tasks that the result was taught.
        of_start: temperature of the version that the edit starts from.
    """
    if not facts.relearns_from_features:
        return of_start
    rows = (edited[task].after if task in edited else facts.tasks[task] for task in taught)
    too_few = sum(row.n_held_out or 0 for row in rows) < LEAST_TEMPERATURE_IMAGES
    return facts.base.manifest.temperature if too_few else of_start
