"""Files that look like labels, by their names: tables, annotations and exports of tools."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from perennial.reading_rules.names import (
    get_file_stem,
    get_parent_folder,
    is_image_path,
    quote_name,
)

_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".manifest", ".parquet", ".xlsx", ".xls", ".ods")
_KNOWN: tuple[tuple[str, str], ...] = (
    (r"_classes\.csv", "a Roboflow table of classes"),
    (r"labels\.json", "a FiftyOne export"),
    (r"_annotations\.coco\.json|instances_.*\.json|.*coco.*\.json", "COCO annotations"),
    (r"metadata\.(csv|jsonl)", "the metadata of a Hugging Face imagefolder"),
    (r"via_.*\.(json|csv)", "a VIA export"),
    (r"info\.labels", "an Edge Impulse export"),
    (r"loc_synset_mapping\.txt|words\.txt", "the names of ImageNet's classes"),
    (r"(data|dataset)\.ya?ml", "the description of a YOLO data set"),
    (r"project-\d+.*\.(json|csv|tsv)", "a Label Studio export"),
    (r".*\.manifest", "a SageMaker or Rekognition manifest"),
    (r"dataset_info\.json|dataset_dict\.json|state\.json", "what save_to_disk of datasets writes"),
    (
        r"(labels?|annotations?|annots?|ground[-_ ]?truth|targets?|image[-_ "
        r"]?list|list)([-_].*)?\.(txt|xml)",
        "a list of labels",
    ),
    (r"(train|val|valid|test)(list)?\.txt", "a list of images"),
)
_JSON = re.compile(
    r"(.*(label|annot|class|categor|truth|target|meta|instances|split|dataset|index|manifest|result|export).*"
    r"|(.*[-_.])?(ann|anns|gt|train|val|valid|test|data|images)([-_.].*)?)\.json"
)
_COMPILED = tuple((re.compile(pattern), description) for pattern, description in _KNOWN)
_ANY = re.compile("|".join(f"(?:{pattern})" for pattern, _ in (*_KNOWN, (_JSON.pattern, ""))))
_READ_FROM_FOLDERS = ("COCO", "Hugging Face", "YOLO data set")
"""Words in descriptions of files from which the client can make a batch."""
_SIDECARS = {
    ".xml": "Pascal VOC annotations",
    ".txt": "YOLO labels",
    ".json": "LabelMe annotations",
}
_MOST_GROUPS = 20


class PossibleLabelFile(NamedTuple):
    """A file of the batch that looks like it holds labels or annotations.

    Attributes:
        number: number of the file.
        path: path of the file.
        description: kind of labels, as a noun.
        is_aside: whether it is one of many files, each for one image.
    """

    number: int
    path: str
    description: str
    is_aside: bool = False

    @property
    def unpack_and_submit_advice(self) -> str:
        """Sentence on which program can read a label file, after a blank; "" if there is none."""
        is_read = any(words in self.description for words in _READ_FROM_FOLDERS)
        return " Unpacked, “perennial submit MODEL FOLDER” reads it." if is_read else ""

    def __str__(self) -> str:
        """Return the end of a sentence: `“labels.json” looks like a FiftyOne export`."""
        return f"{quote_name(self.path)} looks like {self.description}"


def find_possible_label_files(
    names: Sequence[str], remaining: Sequence[int]
) -> list[PossibleLabelFile]:
    """Return the files among `remaining` that look like labels, those for the whole batch first.

    A file may belong to an image with the same stem, as `1.xml` beside `1.jpg` or `labels/1.txt`
    for `images/1.jpg`. Several files like that are listed once per kind.
    """
    batch_files, aside = [], []
    stems: set[str] | None = None
    for index in remaining:
        path = names[index]
        file = path.rpartition("/")[2].lower()
        if is_image_path(file) or "." not in file:
            continue
        description = describe_label_file_kind_by_name(file)
        ending = file[file.rindex(".") :]
        if description is None and ending not in _SIDECARS:
            continue
        if ending in _SIDECARS or ending in _TABLES:
            # Made only when needed: a batch may have half a million names.
            if stems is None:
                stems = {get_file_stem(names[i]) for i in remaining if is_image_path(names[i])}
            if get_file_stem(path) in stems:
                aside.append(index)
                continue
        if description is not None:
            batch_files.append(PossibleLabelFile(index, path, description))
    return [*batch_files, *_group_sidecar_files_by_folder_and_ending(names, aside)]


def describe_label_file_kind_by_name(file: str) -> str | None:
    """Return what kind of label file has such a name, in words, or None.

    `file` is in lower case and has no folder.
    """
    # All patterns as one first: nearly all names match none.
    if not _ANY.fullmatch(file):
        return "a table of labels" if file.endswith(_TABLES) else None
    for pattern, description in _COMPILED:
        if pattern.fullmatch(file):
            return description
    return "labels"


def _group_sidecar_files_by_folder_and_ending(
    names: Sequence[str], aside: Sequence[int]
) -> list[PossibleLabelFile]:
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], int] = {}
    for index in aside:
        path = names[index]
        group = get_parent_folder(path), path[path.rindex(".") :].lower()
        first.setdefault(group, index)
        counts[group] += 1
    return [
        PossibleLabelFile(
            first[group],
            names[first[group]],
            f"one of {count:,} {_SIDECARS[group[1]]}",
            is_aside=True,
        )
        for group, count in sorted(counts.items())
        if count > 1 and group[1] in _SIDECARS
    ][:_MOST_GROUPS]
