"""COCO: annotations as JSON (`images`, `annotations`, `categories`), and a folder of images."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from perennial.pack import parts
from perennial.pack.bad import MAX_BAD, BadEntryCollector
from perennial.pack.errors import PackError
from perennial.pack.files import SourceFolder
from perennial.pack.images import ImageSource
from perennial.pack.sources.boxes import (
    STORED,
    BoxedPicture,
    BoxOptions,
    LabelledBox,
    open_images_with_boxes,
)
from perennial.pack.text import format_count_with_noun, format_first_names, quote_name

_KEYS = ("images", "annotations", "categories")
_HEAD_CHARS = 1 << 16
_LOOKED_FOR = 20
"""Number of a file's images to search for in possible folders, since some may be missing."""


def open_coco_boxes(
    source: Path,
    *,
    whole: bool = False,
    images: Path | str | None = None,
    boxes: str = STORED,
    max_bad: float = MAX_BAD,
    allow_outside: bool = False,
) -> ImageSource:
    """Open a COCO data set: a crop for each bounding box, or with `whole` the images of one class.

    Args:
        source: an annotation file, or a folder with some.
        images: folder of the image files. Default: the usual places, which are the annotations'
            folder, its folder `images`, the folder named in the annotations' file name
            (`instances_val2017.json`: `val2017`), and the same places one folder up.
        boxes, max_bad: see BoxOptions.

    Raises:
        PackError: files are missing or invalid, or too many entries are bad.
    """
    options = BoxOptions(whole, boxes, max_bad).validate_box_options()
    folder = source if source.is_dir() else _get_dataset_folder_of_annotations(source)
    root = SourceFolder(folder, allow_outside)
    files = (
        find_coco_annotation_files(root, root.list_files())
        if source.is_dir()
        else [source.relative_to(folder).as_posix()]
    )
    if not files:
        raise PackError(
            f"The folder {quote_name(folder)} has no JSON file with {', '.join(_KEYS)}."
        )
    part_by_file = dict(zip(files, parts.find_dataset_parts_of_files(files), strict=True))
    as_taken = parts.map_dataset_parts_to_splits(part_by_file.values(), quote_name(source))
    images_root = root if images is None else SourceFolder(Path(images), allow_outside)
    origin = f"{format_count_with_noun(len(files), 'COCO file')} in {quote_name(source.name)}"
    bad = BadEntryCollector(origin, max_bad)
    pictures: list[BoxedPicture] = []
    crowds = 0
    for file, part in part_by_file.items():
        document = _read_coco_document(Path(root.resolve_named_path(file)))
        # A crowd's box covers many objects, so its crop would show no single one.
        crowds += sum(
            isinstance(row, dict) and bool(row.get("iscrowd")) for row in document["annotations"]
        )
        base = (
            images_root.folder if images is not None else _find_image_folder(root, file, document)
        )
        pictures += _iterate_annotated_images(
            _CocoAnnotationFile(file, document, bad), base.absolute(), images_root, as_taken[part]
        )
    notices = (
        [f"{format_count_with_noun(crowds, 'annotation')} of crowds left out."] if crowds else []
    )
    return open_images_with_boxes(pictures, origin, options, bad, notices)


def _get_dataset_folder_of_annotations(file: Path) -> Path:
    """Return the top folder of a COCO data set, which has the annotations and the images."""
    return file.parent.parent if file.parent.name == "annotations" else file.parent


def find_coco_annotation_files(root: SourceFolder, names: Iterable[str]) -> list[str]:
    """Find the COCO annotation files with boxes among a folder's files, at most two folders deep.

    Files with keypoints or captions are left out.
    """
    candidates = (name for name in names if name.endswith(".json") and name.count("/") <= 2)
    return [name for name in candidates if looks_like_coco(root.resolve_named_path(name))]


def looks_like_coco(path: str) -> bool:
    """Return True if a JSON file is a COCO annotation file with boxes."""
    name = path.rsplit("/", 1)[-1]
    # COCO's own files of captions and keypoints hold no boxes to learn from, or the same ones
    # again.
    if name.startswith(("captions_", "person_keypoints_")):
        return False
    try:
        # Only the beginning is read, because annotation files have hundreds of megabytes.
        with open(path, encoding="utf-8-sig") as file:  # noqa: PTH123
            head = file.read(_HEAD_CHARS)
            if '"images"' in head or '"annotations"' in head or '"categories"' in head:
                return head.lstrip().startswith("{")
    except (OSError, UnicodeDecodeError):
        pass
    return False


def _read_coco_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise PackError(f"The file {quote_name(path)} is no JSON: {error}.") from error
    lists = document if isinstance(document, dict) else {}
    missing = [key for key in _KEYS if not isinstance(lists.get(key), list)]
    if missing:
        raise PackError(
            f"The file {quote_name(path)} has no list {format_first_names(missing)}; COCO has "
            f"{', '.join(_KEYS)}."
        )
    return lists


def _find_image_folder(root: SourceFolder, file: str, document: dict[str, Any]) -> Path:
    """Find the folder that contains the images of a COCO file. Raises PackError if there is none."""
    annotations_folder = Path(root.resolve_named_path(file)).parent
    # Roboflow calls its file `_annotations.coco.json`.
    stem = file.rpartition("/")[2].removesuffix(".json").removeprefix("_").removesuffix(".coco")
    names = ("", "images", stem, stem.rpartition("_")[2], f"images/{stem.rpartition('_')[2]}")
    search_roots = (
        [annotations_folder, annotations_folder.parent]
        if annotations_folder != root.folder
        else [annotations_folder]
    )
    places = list(dict.fromkeys(folder / name for folder in search_roots for name in names))
    first = [
        name
        for row in document["images"][:_LOOKED_FOR]
        if (name := _get_text_field_or_empty(row, "file_name"))
    ]
    for name in first:
        for candidate_folder in places:
            # A path with a zero byte raises ValueError instead of being absent.
            if "\0" not in name and (candidate_folder / name).exists():
                return candidate_folder
    where = format_first_names(
        [os.path.relpath(candidate_folder, root.folder) for candidate_folder in places], 10
    )
    named = quote_name(first[0] if first else "")
    raise PackError(
        f"The image {named} of {quote_name(file)} is in none of the folders {where}. Say with "
        f"images= where they are."
    )


class _CocoAnnotationFile(NamedTuple):
    """A COCO annotation file: its path, its JSON lists, and its bad entries."""

    file: str
    lists: dict[str, Any]
    bad: BadEntryCollector


def _iterate_annotated_images(
    document: _CocoAnnotationFile, base: Path, root: SourceFolder, part: str
) -> Iterator[BoxedPicture]:
    """Yield every image of a COCO file with its boxes; inconsistent entries are bad. Raises
    PackError.
    """
    boxes = _read_boxes_by_image(document)
    image_ids: set[object] = set()
    for number, row in enumerate(document.lists["images"], start=1):
        where = f"The image number {number} of {quote_name(document.file)}"
        name, identity = (
            _get_text_field_or_empty(row, "file_name").replace("\\", "/"),
            _get_entry_id(row, "id"),
        )
        if not name or identity is None or "\0" in name:
            document.bad.record_bad_entry(where, "has no id and file_name")
        elif identity in image_ids:
            document.bad.record_bad_entry(
                f"{where} ({quote_name(name)})", f"has the id {identity} of an image before it"
            )
        else:
            image_ids.add(identity)
            size = _get_width_and_height(row)
            path = root.resolve_named_path(os.path.join(base, name), quote_name(document.file))  # noqa: PTH118
            yield BoxedPicture(f"{document.file}/{name}", path, part, boxes.pop(identity, []), size)
    # What is left belongs to no image: `boxes.pop` has removed the others.
    for lacking, orphans in boxes.items():
        for _ in orphans:
            document.bad.record_bad_entry(
                f"An annotation of {quote_name(document.file)}",
                f"is of the image {lacking}, which it lacks",
            )


def _read_boxes_by_image(document: _CocoAnnotationFile) -> dict[object, list[LabelledBox]]:
    """Return the bounding boxes in a COCO file by image id, ordered by annotation id."""
    names: dict[object, str] = {}
    for number, row in enumerate(document.lists["categories"], start=1):
        identity, name = _get_entry_id(row, "id"), _get_text_field_or_empty(row, "name")
        if identity is None or not name:
            document.bad.record_bad_entry(
                f"The category number {number} of {quote_name(document.file)}", "has no id and name"
            )
        else:
            names[identity] = name
    rows = list(enumerate(document.lists["annotations"], start=1))
    # By id, so that a file written in another order gives the same batch.
    rows.sort(key=lambda numbered: _get_coco_annotation_sort_key(numbered[1]))
    boxes: dict[object, list[LabelledBox]] = {}
    for number, row in rows:
        if isinstance(row, dict) and row.get("iscrowd"):
            continue
        where = f"The annotation number {number} of {quote_name(document.file)}"
        image, category = _get_entry_id(row, "image_id"), _get_entry_id(row, "category_id")
        if image is None or category is None:
            document.bad.record_bad_entry(where, "misses image_id or category_id")
        elif category not in names:
            document.bad.record_bad_entry(
                where, f"has the category {category}, which categories do not name"
            )
        elif (corners := _convert_bbox_to_corners(row.get("bbox"))) is None:
            document.bad.record_bad_entry(
                where,
                f"has the bbox {quote_name(str(row.get('bbox')))} instead of [x, y, width, height]",
            )
        else:
            boxes.setdefault(image, []).append(LabelledBox(names[category], *corners))
    return boxes


def _get_coco_annotation_sort_key(row: object) -> tuple[int, int]:
    identity = _get_entry_id(row, "id")
    return (0, identity) if isinstance(identity, int) else (1, 0)


def _get_entry_id(row: object, key: str) -> int | str | None:
    """Return the number or text that identifies an entry of a COCO file, or None."""
    value = row.get(key) if isinstance(row, dict) else None
    # Some tools write ids as 1.0.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _get_text_field_or_empty(row: object, key: str) -> str:
    value = row.get(key) if isinstance(row, dict) else None
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""


def _get_width_and_height(row: dict[str, Any]) -> tuple[int, int] | None:
    width, height = row.get("width"), row.get("height")
    try:
        return (int(width), int(height)) if width and height else None
    # JSON's 1e999 is infinite in Python, and has no integer.
    except (TypeError, ValueError, OverflowError):
        return None


def _convert_bbox_to_corners(bbox: object) -> tuple[float, float, float, float] | None:
    """Convert a COCO bbox (x, y, width, height) to left, top, right, bottom; None if invalid."""
    if not isinstance(bbox, list) or len(bbox) != 4:
        return None
    try:
        x, y, width, height = (float(one) for one in bbox)
    except (TypeError, ValueError, OverflowError):
        return None
    return x, y, x + width, y + height
