"""Edited data of one task: datasets, traces, and rows of kept features, without torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from core.contract.manifest import FEATURES, ORDER, REST
from core.edits.operation_checks import ImageEdits
from core.ingest.dataset import Images, memory_map_image_dataset, write_image_dataset_file
from core.ingest.findings.traces import (
    ImageFingerprints,
    read_image_fingerprints,
    write_image_fingerprints,
)

_BLOCK_BYTES = 16 << 20
KEY_BYTES = 16


@dataclass(frozen=True)
class EditedLabels:
    """Labels of the images in a dataset part before and after an edit.

    Attributes:
        before: label of each image; its length is the size of the part.
        after: label of each image; None: the image is removed.
    """

    before: Sequence[str]
    after: Sequence[str | None]

    @property
    def remaining_rows(self) -> npt.NDArray[np.int64]:
        """Row numbers of the images that the edit keeps, ascending."""
        rows = [row for row, label in enumerate(self.after) if label is not None]
        return np.array(rows, np.int64)

    @property
    def remaining_labels(self) -> list[str]:
        """Labels of the images that the edit keeps, in order."""
        return [label for label in self.after if label is not None]

    @property
    def is_changed(self) -> bool:
        """True if the edit relabels or removes any image."""
        return list(self.before) != list(self.after)

    def has_relabelled_or_removed_images(self, renames: Mapping[str, str]) -> bool:
        """Return True if the edit relabels or removes images, apart from renaming their class."""
        return [renames.get(label, label) for label in self.before] != list(self.after)

    def list_touched_and_removed_rows(
        self, classes: Mapping[str, str | None]
    ) -> tuple[list[int], list[int]]:
        """Return the rows of relabelled or removed images, and the rows of removed images alone."""
        rows = range(len(self.before))
        touched = [
            row
            for row in rows
            if self.after[row] != classes.get(self.before[row], self.before[row])
        ]
        removed = [row for row in rows if self.after[row] is None]
        return sorted({*touched, *removed}), removed

    def count_changed_images(self, classes: Mapping[str, str | None]) -> tuple[int, int]:
        """Return the numbers of relabelled and of removed images; renaming a class does not
        count.
        """
        relabelled = sum(
            label is not None and label != classes.get(old, old)
            for old, label in zip(self.before, self.after, strict=True)
        )
        return relabelled, sum(label is None for label in self.after)


def apply_edit_to_labels(
    labels: Sequence[str], edits: ImageEdits, classes: Mapping[str, str | None]
) -> EditedLabels:
    """Apply an edit to the labels of a dataset part.

    Args:
        labels: labels before.
        edits: new labels of single images, by their new names.
        classes: new names of classes; None: the class is dropped.
    """
    after = [
        edits[row] if row in edits else classes.get(label, label)
        for row, label in enumerate(labels)
    ]
    return EditedLabels(labels, after)


def read_dataset_labels(path: Path, names: Sequence[str]) -> list[str]:
    """Read the class name of each image in a dataset file."""
    _, numbers = memory_map_image_dataset(path)
    return [names[number] for number in numbers.tolist()]


def write_edited_dataset(
    source: Path, target: Path, edited: EditedLabels, names: Sequence[str]
) -> None:
    """Write a copy of a dataset without removed images, with the edited labels."""
    images, _ = memory_map_image_dataset(source)
    rows, number = edited.remaining_rows, {name: at for at, name in enumerate(names)}
    labels = np.array([number[label] for label in edited.remaining_labels], np.int64)
    shape = (int(images.shape[1]), int(images.shape[2]), int(images.shape[3]))

    def iterate_blocks() -> Iterator[Images]:
        # In pieces, since a part may be larger than the memory.
        step = max(1, _BLOCK_BYTES // max(1, int(np.prod(shape))))
        for begin in range(0, len(rows), step):
            yield np.asarray(images[rows[begin : begin + step]])

    write_image_dataset_file(target, labels, shape, iterate_blocks())


def read_paths_of_removed_images(
    path: Path, train: EditedLabels, held_out: EditedLabels
) -> list[str]:
    """Return the paths of the removed images from a trace file (image hashes and paths)."""
    traces = read_image_fingerprints(path)
    if (len(traces.train), len(traces.held_out)) != (len(train.after), len(held_out.after)):
        return []
    labels = [*train.after, *held_out.after]
    return [
        name for name, label in zip(traces.names, labels, strict=True) if label is None and name
    ]


def read_labels_from_fingerprint_file(path: Path) -> tuple[list[str], list[str]]:
    """Read the labels of training and held-out images from a trace file; none if it has no
    labels.
    """
    traces = read_image_fingerprints(path)
    if traces.labels is None:
        return [], []
    labels = [traces.classes[number] for number in traces.labels.tolist()]
    return labels[: len(traces.train)], labels[len(traces.train) :]


def write_edited_fingerprint_file(
    source: Path, target: Path, train: EditedLabels, held_out: EditedLabels
) -> bool:
    """Write a trace file (image hashes and paths) with the images and labels that remain after an
    edit.

    Return False and write nothing if the number of hashes in `source` does not match the parts.
    """
    traces = read_image_fingerprints(source)
    # Rows are matched by number: a file of another length would give images wrong paths.
    if (len(traces.train), len(traces.held_out)) != (len(train.after), len(held_out.after)):
        return False
    # Paths of both parts are in one list, those of training images first.
    rows = np.concatenate([train.remaining_rows, len(train.after) + held_out.remaining_rows])
    labels = [*train.remaining_labels, *held_out.remaining_labels]
    classes = sorted(set(labels))
    number = {name: at for at, name in enumerate(classes)}
    edited = ImageFingerprints(
        traces.train[train.remaining_rows],
        traces.held_out[held_out.remaining_rows],
        [traces.names[row] for row in rows.tolist()],
        None if traces.pixels is None else traces.pixels[rows],
        None
        if traces.labels is None
        else np.array([number[label] for label in labels], traces.labels.dtype),
        classes if traces.labels is not None else [],
    )
    write_image_fingerprints(target, edited)
    return True


@dataclass(frozen=True)
class StoredTaskFeatures:
    """Stored features of the images of one task, with their labels.

    Attributes:
        features: float32 [n, D].
        classes: int64 [n], numbers of the model's classes.
        keys: uint8 [n, 16], digests of the images.
        is_ordered: True if the rows have the order of the dataset.
    """

    features: npt.NDArray[np.float32]
    classes: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint8]
    is_ordered: bool


def read_stored_task_features(task: int, read: Path, rest: Path | None) -> StoredTaskFeatures:
    """Read the stored features of a task, in the order of its dataset where that is known.

    Args:
        task: number of the task.
        read: the part that later jobs read.
        rest: the part with the other rows; None if there is none.
    """
    parts = [_select_tensors_by_prefix(load_file(read), f"{task}.")]
    if rest is not None:
        parts.append(_select_tensors_by_prefix(load_file(rest), f"{task}.{REST}."))
    joined = {
        name: np.concatenate([part[name] for part in parts])
        for name in ("features", "classes", "keys")
    }
    order = parts[-1].get(ORDER)
    # All rows in one file were never split, so they have the dataset's order.
    is_ordered = rest is None or order is not None
    if order is not None:
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        joined = {name: rows[position] for name, rows in joined.items()}
    return StoredTaskFeatures(joined["features"], joined["classes"], joined["keys"], is_ordered)


def write_feature_key_dataset_and_features(
    folder: Path, rows: StoredTaskFeatures, edited: EditedLabels, names: Sequence[str]
) -> tuple[Path, Path]:
    """Write two files to learn a task without its images: a dataset of feature keys, and the
    features.

    Return both files: the dataset, uint8 [n, 1, 1, 16], and `features` float32 [n, D].
    """
    remaining_rows, number = edited.remaining_rows, {name: at for at, name in enumerate(names)}
    labels = np.array([number[label] for label in edited.remaining_labels], np.int64)
    keys = np.ascontiguousarray(rows.keys[remaining_rows]).reshape(-1, 1, 1, KEY_BYTES)
    dataset, features = folder / "keys.safetensors", folder / "known.safetensors"
    write_image_dataset_file(dataset, labels, (1, 1, KEY_BYTES), [keys])
    save_file({"features": np.ascontiguousarray(rows.features[remaining_rows])}, features)
    return dataset, features


def write_tensors_with_reordered_class_rows(
    source: Path, target: Path, former: Sequence[int | None]
) -> None:
    """Write a copy of a tensor file with its class rows selected and reordered.

    Args:
        source: a head, or a classifier in closed form.
        target: file to write.
        former: for each new class the number of its former class; None: a row of zeros.
    """
    tensors: dict[str, npt.NDArray[Any]] = load_file(source)
    rows = np.array([-1 if number is None else number for number in former], np.int64)
    for name, tensor in tensors.items():
        picked = tensor[np.maximum(rows, 0)]
        picked[rows < 0] = 0
        tensors[name] = np.ascontiguousarray(picked)
    save_file(tensors, target)


def get_names_of_task_feature_parts(task: int) -> tuple[str, str]:
    """Return the names of the two parts with a task's features: those that later jobs read, and the
    rest.
    """
    return f"{FEATURES}.{task}", f"{FEATURES}.{task}.{REST}"


def _select_tensors_by_prefix(
    tensors: Mapping[str, npt.NDArray[Any]], prefix: str
) -> dict[str, npt.NDArray[Any]]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
