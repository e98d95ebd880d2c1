"""YOLO: a data.yaml with class names and the parts' folders, and a text file of boxes per image."""

from collections.abc import Iterator
from pathlib import Path

from perennial.pack import parts
from perennial.pack.bad import MAX_BAD, BadEntryCollector
from perennial.pack.errors import PackError
from perennial.pack.files import SourceFolder
from perennial.pack.images import ImageSource
from perennial.pack.names import is_image_path
from perennial.pack.sources import plain_yaml
from perennial.pack.sources.boxes import (
    STORED,
    BoxedPicture,
    BoxOptions,
    LabelledBox,
    open_images_with_boxes,
)
from perennial.pack.sources.numbers import NumberedClassNames
from perennial.pack.text import format_count_with_noun, format_first_names, quote_name

_PARTS = ("train", "val", "test")
_BOX_NUMBERS = 4
_TOLERANCE = 0.01
"""Amount by which shares may exceed the image, as in Ultralytics, because of rounding."""


def open_yolo_boxes(
    source: Path,
    *,
    whole: bool = False,
    boxes: str = STORED,
    max_bad: float = MAX_BAD,
    allow_outside: bool = False,
) -> ImageSource:
    """Open a YOLO data set: a crop for each bounding box, or with `whole` the images of one class.

    Args:
        source: a data.yaml, or a folder with one.
        boxes, max_bad: see BoxOptions.

    Raises:
        PackError: the data set cannot be used, or too many entries are bad.
    """
    options = BoxOptions(whole, boxes, max_bad).validate_box_options()
    files = find_yolo_yaml_files(source) if source.is_dir() else [source]
    if len(files) != 1:
        problem = (
            f"several: {format_first_names([file.name for file in files])}" if files else "none"
        )
        raise PackError(
            f"{quote_name(source)} should have one data.yaml with names and train; it has "
            f"{problem}."
        )
    file = files[0]
    document = _read_data_yaml(file)
    root = SourceFolder(file.parent, allow_outside)
    classes = NumberedClassNames(_read_class_names(document, file), quote_name(file.name))
    # An image in several parts belongs to the first of them, so that no learned image is held out.
    part_of = dict(reversed(list(_iterate_yolo_images_with_part(root, document, file))))
    if not part_of:
        raise PackError(f"The folders of train, val and test in {quote_name(file)} have no images.")
    as_taken = parts.map_dataset_parts_to_splits(part_of.values(), quote_name(file))
    origin = f"the YOLO data set {quote_name(file.parent.name or file.name)}"
    bad = BadEntryCollector(origin, max_bad)
    pictures = []
    unlabelled = 0
    for image, part in part_of.items():
        boxes_in = _read_yolo_boxes_of_image(root, image, classes, bad)
        unlabelled += boxes_in is None
        path = root.resolve_named_path(image, quote_name(file.name))
        pictures.append(BoxedPicture(image, path, as_taken[part], boxes_in or (), shares=True))
    notices = (
        [f"{format_count_with_noun(unlabelled, 'image has', 'images have')} no file of labels."]
        if unlabelled
        else []
    )
    return open_images_with_boxes(pictures, origin, options, bad, notices)


def _iterate_yolo_images_with_part(
    root: SourceFolder, document: dict[str, plain_yaml.Value], file: Path
) -> Iterator[tuple[str, str]]:
    """Yield every image of a YOLO data set with its part (train, test or validation)."""
    for part in _PARTS:
        for folder_or_list in _find_image_folders_or_lists_of_part(root, document, part, file):
            for image in _iterate_images_of_folder_or_list(root, folder_or_list, file):
                yield image, parts.parse_dataset_part(part)


def find_yolo_yaml_files(folder: Path) -> list[Path]:
    """Return the YOLO data.yaml files in a folder."""
    candidates = sorted(
        path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file()
    )
    return [path for path in candidates if looks_like_yolo_yaml(path)]


def looks_like_yolo_yaml(file: Path) -> bool:
    """Return True if a YAML file describes a YOLO data set: class names and a training part."""
    try:
        document = plain_yaml.parse_simple_yaml(file.read_text("utf-8"), file.name)
    # Other YAML is common in folders: what cannot be parsed is no data set, and no error.
    except (OSError, ValueError):
        return False
    return "names" in document and "train" in document


def _read_data_yaml(file: Path) -> dict[str, plain_yaml.Value]:
    try:
        return plain_yaml.parse_simple_yaml(file.read_text("utf-8"), quote_name(file))
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"The file {quote_name(file)} cannot be read: {error}.") from error


def _read_class_names(document: dict[str, plain_yaml.Value], file: Path) -> list[str]:
    names = document.get("names")
    if isinstance(names, dict) and all(key.isdecimal() for key in names):
        numbered = {int(key): name for key, name in names.items()}
        if sorted(numbered) == list(range(len(numbered))):
            return [numbered[number] for number in range(len(numbered))]
    if isinstance(names, list) and names:
        return names
    raise PackError(
        f"{quote_name(file)} has no list “names” of its classes, such as “names: [cat, dog]”, from "
        f"number 0 on."
    )


def _find_image_folders_or_lists_of_part(
    root: SourceFolder, document: dict[str, plain_yaml.Value], part: str, file: Path
) -> list[str]:
    """Return the folders or list files with a part's images that data.yaml names.

    `../train/images`, as Roboflow writes it, means `train/images` if that exists.
    """
    places, base, value = [], document.get("path", ""), document.get(part)
    for named_path in [value] if isinstance(value, str) else value or []:
        # Tools disagree about what paths are relative to: `path`, or the file itself.
        candidates = [
            f"{base}/{named_path}" if isinstance(base, str) and base else named_path,
            named_path,
            named_path.removeprefix("../"),
        ]
        existing = [path for path in candidates if Path(root.folder, path).exists()]
        inside = [
            path
            for path in existing
            if root.allow_outside or root.is_inside_root(str(root.folder / path))
        ]
        if not inside:
            root.resolve_named_path(candidates[0], quote_name(file.name))
            raise PackError(
                f"{quote_name(file)} names {quote_name(named_path)}, which is not in "
                f"{quote_name(root.folder)}."
            )
        places.append(_normalise_image_path(inside[0]))
    return places


def _iterate_images_of_folder_or_list(
    root: SourceFolder, folder_or_list: str, file: Path
) -> Iterator[str]:
    """Yield the images in a folder, or in a text file that lists one per line."""
    path = Path(root.resolve_named_path(folder_or_list, quote_name(file.name)))
    if path.is_dir():
        yield from (name for name in root.list_files(folder_or_list) if is_image_path(name))
        return
    for image_line in _read_text_lines(path):
        if image_line.strip():
            above = folder_or_list.rpartition("/")[0]
            name = image_line.strip().replace("\\", "/")
            yield _normalise_image_path(
                f"{above}/{name.removeprefix('./')}" if above and not name.startswith("/") else name
            )


def _read_text_lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"The file {quote_name(path)} cannot be read: {error}.") from error


def _normalise_image_path(path: str) -> str:
    rooted = "/" if path.startswith("/") else ""
    return rooted + "/".join(part for part in path.split("/") if part not in ("", "."))


def _read_yolo_boxes_of_image(
    root: SourceFolder, image: str, classes: NumberedClassNames, bad: BadEntryCollector
) -> list[LabelledBox] | None:
    """Read the YOLO label file of an image: its bounding boxes; None without a file."""
    # YOLO replaces the folder `images` in the path by `labels`; `my-images` is another folder.
    before, between, after = image.rpartition("images/")
    label_path = f"{before}labels/{after}" if between and before[-1:] in ("", "/") else image
    path = Path(root.resolve_named_path(f"{label_path.rpartition('.')[0]}.txt", quote_name(image)))
    if not path.is_file():
        return None
    boxes: list[LabelledBox] = []
    try:
        box_lines = _read_text_lines(path)
    except PackError as error:
        bad.record_bad_entry("A file of boxes:", str(error))
        return boxes
    for number, box_line in enumerate(box_lines, start=1):
        if box_line.strip():
            where = f"Line {number} of {quote_name(path)}"
            try:
                boxes.append(_parse_box_line(box_line.split(), where, classes))
            except PackError as error:
                bad.record_bad_entry(where, str(error).removeprefix(where).strip())
    return boxes


def _parse_box_line(cells: list[str], where: str, classes: NumberedClassNames) -> LabelledBox:
    """Parse a line of a YOLO label file as a bounding box. Raises PackError that begins with
    `where`.
    """
    try:
        number, numbers = _parse_class_number(cells[0]), [float(cell) for cell in cells[1:]]
    except ValueError as error:
        raise PackError(
            f"{where} is {quote_name(' '.join(cells))}; it must be numbers: class x y width height."
        ) from error
    label = classes.get_class_name(str(number), where)
    if len(numbers) > _BOX_NUMBERS and len(numbers) % 2 and 0 <= numbers[-1] <= 1:
        numbers.pop()  # a model's confidence in the box
    if len(numbers) != _BOX_NUMBERS and (len(numbers) < 6 or len(numbers) % 2):
        raise PackError(
            f"{where} has {len(cells)} numbers; it must be class x y width height, a confidence "
            "after them or none, or a class and the corners of a polygon."
        )
    if not all(-_TOLERANCE <= one <= 1 + _TOLERANCE for one in numbers):
        raise PackError(
            f"{where} has numbers beyond 0 to 1; they are shares of width and height, not pixels."
        )
    if len(numbers) == _BOX_NUMBERS:
        x, y, width, height = numbers
        return LabelledBox(label, x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    # A polygon is learned as the box around it.
    across, down = numbers[::2], numbers[1::2]
    return LabelledBox(label, min(across), min(down), max(across), max(down))


def _parse_class_number(text: str) -> int:
    """Parse a class number, also as array tools write it (0.0, 1.000e+00). Raises ValueError."""
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)
