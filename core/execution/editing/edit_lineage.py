"""The version that the next process of an edit continues, and its classes under other numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.contract.jobs.job_spec import LocalVersionPartFile
from core.contract.manifest import PER_TASK, Manifest
from core.edits import rewrite
from core.lineage.class_numbers import GONE, compose_class_maps

_OF_CLASSES = ("head", "own")
"""Parts whose tensors have a row for each class, in a version that is solved from sums."""


@dataclass(frozen=True)
class IntermediateEditedVersion:
    """A version between two processes of an edit job: manifest, local parts and class numbers.

    Attributes:
        manifest: its manifest.
        parts: its parts and those of its ancestors, by name.
        class_numbers: maps of the numbers of classes in these parts.
    """

    manifest: Manifest
    parts: Mapping[str, LocalVersionPartFile]
    class_numbers: list[list[int]]


def renumber_classes_of_edited_version(
    edited_version: IntermediateEditedVersion, numbers: Sequence[int], folder: Path
) -> IntermediateEditedVersion:
    """Renumber the classes of a version within an edit, moving the rows of its classifier.

    The classifier's rows are moved. Sums and features stay as they are stored, and the job process
    reads their numbers through a map: there may be hundreds of tasks.

    Args:
        edited_version: the lineage under the former numbers; its manifest has the new classes.
        numbers: new number of each former class.
        folder: for the classifier.
    """
    size = len(edited_version.manifest.classes or [])
    # If new classes are only appended, stored numbers stay valid and need no map.
    is_extended = list(numbers) == list(range(len(numbers)))
    if is_extended and len(numbers) == size:
        return edited_version
    former: list[int | None] = [None] * size
    # Backwards: of several merged classes, the row of the first one remains.
    for old in range(len(numbers) - 1, -1, -1):
        if numbers[old] != GONE:
            former[numbers[old]] = old
    parts = dict(edited_version.parts)
    for name in parts.keys() & set(_OF_CLASSES):
        path = folder / f"{name}.safetensors"
        rewrite.write_tensors_with_reordered_class_rows(parts[name].path, path, former)
        parts[name] = parts[name].model_copy(update={"path": path})
    if is_extended:
        return replace(edited_version, parts=parts)
    last = len(edited_version.class_numbers)
    maps = [
        *(compose_class_maps(class_map, numbers) for class_map in edited_version.class_numbers),
        list(numbers),
    ]
    for name, part in parts.items():
        if part.type in PER_TASK:
            map_index = last if part.numbers is None else part.numbers
            parts[name] = part.model_copy(update={"numbers": map_index})
    return replace(edited_version, parts=parts, class_numbers=maps)
