"""A Hugging Face `imagefolder`: images whose labels stand in metadata.csv or metadata.jsonl beside them."""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from perennial.pack import parts
from perennial.pack.csv_file import add_rows
from perennial.pack.errors import PackError
from perennial.pack.files import FileImages, Root
from perennial.pack.text import listed, show

METADATA = ("metadata.csv", "metadata.jsonl")
_FILE = "file_name"


class MetadataImages(FileImages):
    """The images that the metadata files of a folder name."""

    def __init__(self, folder: Path, *, label: str = "label", allow_outside: bool = False) -> None:
        """Read the metadata; no image is read.

        label: the column of labels. Raises PackError.
        """
        super().__init__(f"the imagefolder {show(folder.name or folder)}", folder)
        root = Root(folder, allow_outside)
        files = metadata_among(root.walk())
        if not files:
            raise PackError(f"The folder {show(folder)} has no {' or '.join(METADATA)}.")
        found = [
            (row, parts.part_in(row[0].partition("/")[0]))
            for file in files
            for row in _rows(root, file, label)
        ]
        if not found:
            raise PackError(f"{listed(files)} in {show(folder)} list no images.")
        as_taken = parts.joined((part for _, part in found), show(folder))
        rows = ((path, name, as_taken[part], where) for (path, name, where), part in found)
        add_rows(self, rows, root)


def metadata_among(names: Iterable[str]) -> list[str]:
    """Those of a folder's files that are metadata by their names."""
    return [name for name in names if name.rpartition("/")[2] in METADATA]


def _rows(root: Root, file: str, label: str) -> Iterator[tuple[str, str, str]]:
    """(path from the root, label, where it is said) of a metadata file."""
    folder = f"{file.rpartition('/')[0]}/" if "/" in file else ""
    path = Path(root.path(file))
    lines = _jsonl(path) if file.endswith(".jsonl") else _csv(path)
    for line, row in lines:
        where = f"Line {line} of {show(file)}"
        missing = [column for column in (_FILE, label) if column not in row]
        if missing:
            raise PackError(
                f"{where} has no {listed(missing)}, but {listed([str(key) for key in row], 20)}. Say which column "
                "holds the label with label=, or pack class folders with kind='folder'."
            )
        name, found = row[_FILE], row[label]
        if not isinstance(name, str) or not isinstance(found, str | int) or isinstance(found, bool):
            raise PackError(
                f"{where} has {show(str(name))} and {show(str(found))} instead of a path and a label."
            )
        yield folder + name, str(found), where


def _csv(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, strict=True)
            for row in reader:
                yield reader.line_num, {str(key): value for key, value in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PackError(f"{show(path)} is no CSV in UTF-8: {error}.") from error


def _jsonl(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        with path.open(encoding="utf-8-sig") as text:
            for number, line in enumerate(text, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise PackError(f"Line {number} of {show(path)} is no JSON object.")
                    yield number, row
    except PackError:
        raise
    except (OSError, ValueError) as error:
        raise PackError(f"{show(path)} is no JSON Lines in UTF-8: {error}.") from error
