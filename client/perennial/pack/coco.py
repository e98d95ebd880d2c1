"""COCO: annotations as JSON (`images`, `annotations`, `categories`), and a folder of images."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from perennial.pack import parts
from perennial.pack.boxes import Box, Picture, from_boxes
from perennial.pack.errors import PackError
from perennial.pack.files import Root
from perennial.pack.images import Images
from perennial.pack.text import count, listed, show

_KEYS = ("images", "annotations", "categories")
_HEAD_CHARS = 1 << 16


def open_coco(
    source: Path, *, whole: bool = False, images: Path | str | None = None, allow_outside: bool = False
) -> Images:
    """Crops of all boxes, or with `whole` the images that show one class.

    source: an annotation file, or a folder with some. images: where the files are; default the usual places: beside the
    annotations, in `images`, in the folder that the annotations are named by (`instances_val2017.json`: `val2017`), and
    the same one folder up. Raises PackError.
    """
    folder = source if source.is_dir() else _top(source)
    root = Root(folder, allow_outside)
    files = (
        annotations_among(root, root.walk()) if source.is_dir() else [source.relative_to(folder).as_posix()]
    )
    if not files:
        raise PackError(f"The folder {show(folder)} has no JSON file with {', '.join(_KEYS)}.")
    found = dict(zip(files, parts.parts_of(files), strict=True))
    as_taken = parts.joined(found.values(), show(source))
    images_root = root if images is None else Root(Path(images), allow_outside)
    pictures: list[Picture] = []
    crowds = 0
    for file, part in found.items():
        document = _document(Path(root.path(file)))
        crowds += sum(isinstance(row, dict) and bool(row.get("iscrowd")) for row in document["annotations"])
        base = images_root.folder if images is not None else _base(root, file, document)
        pictures += _pictures(document, base.absolute(), images_root, as_taken[part], file)
    packed = from_boxes(pictures, f"{count(len(files), 'COCO file')} in {show(source.name)}", whole)
    if crowds:
        packed.warnings.append(f"{count(crowds, 'annotation')} of crowds left out.")
    return packed


def _top(file: Path) -> Path:
    """The folder that holds annotations and images: one above a folder called `annotations`."""
    return file.parent.parent if file.parent.name == "annotations" else file.parent


def annotations_among(root: Root, names: Iterable[str]) -> list[str]:
    """Those of a folder's files, at most two folders deep, that look like COCO; no keypoints, no captions."""
    found = (name for name in names if name.endswith(".json") and name.count("/") <= 2)
    return [name for name in found if looks_like_coco(root.path(name))]


def looks_like_coco(path: str) -> bool:
    """Whether a JSON file has the names of COCO's lists, and boxes rather than captions or keypoints."""
    name = path.rsplit("/", 1)[-1]
    if name.startswith(("captions_", "person_keypoints_")):
        return False
    try:
        with open(path, encoding="utf-8-sig") as file:  # noqa: PTH123
            head = file.read(_HEAD_CHARS)
            if '"images"' in head or '"annotations"' in head or '"categories"' in head:
                return head.lstrip().startswith("{")
    except (OSError, UnicodeDecodeError):
        pass
    return False


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PackError(f"The file {show(path)} is no JSON: {error}.") from error
    lists = document if isinstance(document, dict) else {}
    missing = [key for key in _KEYS if not isinstance(lists.get(key), list)]
    if missing:
        raise PackError(f"The file {show(path)} has no list {listed(missing)}; COCO has {', '.join(_KEYS)}.")
    return lists


def _base(root: Root, file: str, document: dict[str, Any]) -> Path:
    """The folder in which the first image is. Raises PackError naming where it was looked for."""
    beside = Path(root.path(file)).parent
    stem = file.rpartition("/")[2].removesuffix(".json").removeprefix("_").removesuffix(".coco")
    names = ("", "images", stem, stem.rpartition("_")[2], f"images/{stem.rpartition('_')[2]}")
    above = [beside, beside.parent] if beside != root.folder else [beside]
    places = list(dict.fromkeys(folder / name for folder in above for name in names))
    first = next((str(row.get("file_name", "")) for row in document["images"]), "")
    for place in places:
        if first and (place / first).exists():
            return place
    where = listed([os.path.relpath(place, root.folder) for place in places], 10)
    raise PackError(
        f"The image {show(first)} of {show(file)} is in none of the folders {where}. Say with images= where they are."
    )


def _pictures(document: dict[str, Any], base: Path, root: Root, part: str, file: str) -> Iterator[Picture]:
    """Every image of a document with its boxes. Raises PackError for what does not fit together."""
    try:
        names = {row["id"]: str(row["name"]) for row in document["categories"]}
        boxes: dict[Any, list[Box]] = {row["id"]: [] for row in document["images"]}
        for row in sorted(document["annotations"], key=lambda row: row["id"]):
            if not row.get("iscrowd"):
                x, y, width, height = map(float, row["bbox"])
                boxes[row["image_id"]].append(Box(names[row["category_id"]], x, y, x + width, y + height))
        for row in document["images"]:
            name = str(row["file_name"]).replace("\\", "/")
            size = (int(row["width"]), int(row["height"])) if row.get("width") and row.get("height") else None
            path = root.path(os.path.join(base, name), show(file))  # noqa: PTH118
            yield Picture(f"{file}/{name}", path, part, boxes[row["id"]], size)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, PackError):
            raise
        what = f"misses {error}" if isinstance(error, KeyError) else str(error)
        raise PackError(
            f"{show(file)} does not fit together: an entry {what}. Each annotation needs id, image_id, category_id and "
            "bbox [x, y, width, height]; each image id and file_name; each category id and name."
        ) from error
