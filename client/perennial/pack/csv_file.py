"""A CSV file of paths and labels, `path,label[,split]`: paths are relative to the file."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perennial.pack import parts
from perennial.pack.bad import BadEntries
from perennial.pack.errors import PackError
from perennial.pack.files import FileImages, Root
from perennial.pack.images import Image
from perennial.pack.labels import normal_label
from perennial.pack.names import CSV_NAME, is_junk, normal, numbered, wrong_path
from perennial.pack.text import count, show

_COLUMNS = (["path", "label"], ["path", "label", "split"])
_EXAMPLE = "path,label or path,label,split, and then a line for each image, such as images/1.jpg,cat"
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


class Row(NamedTuple):
    """A line of the file; `part`: train, test, validation or empty."""

    line: int
    path: str
    label: str
    part: str


class CsvImages(FileImages):
    """The images that a CSV file names."""

    def __init__(self, file: Path, *, allow_outside: bool = False) -> None:
        """Read the list; no image is read. Raises PackError."""
        super().__init__(f"the list {show(file.name)}", file.parent)
        rows = list(rows_of(file))
        if not rows:
            raise PackError(f"{show(file)} lists no images.")
        as_taken = parts.joined((row.part for row in rows), show(file))
        root = Root(file.parent, allow_outside)
        add_rows(
            self,
            ((row.path, row.label, as_taken[row.part], f"Line {row.line} of {show(file)}") for row in rows),
            root,
        )


def add_rows(
    images: FileImages, rows: Iterator[tuple[str, str, str, str]], root: Root, bad: BadEntries | None = None
) -> None:
    """Add files as (path from the root, label, part, where it is said), sorted by path.

    A path that cannot be a name in an archive gets a number instead. Raises PackError for a path that leaves the root,
    and for one that leads to nothing or is named twice unless `bad` takes it.
    """
    seen: dict[str, str] = {}
    renamed = 0
    for number, (path, label, part, where) in enumerate(sorted(rows)):
        name = normal(path.replace("\\", "/").removeprefix("./"))
        if name in seen:
            if bad is not None:
                bad.add(where, f"names {show(path)}, which {seen[name]} has named already")
                continue
            raise PackError(
                f"{where} names {show(path)}, which {seen[name]} has named already. Keep one of them."
            )
        seen[name] = where
        file = path.replace("\\", "/")
        root.path(file, where)
        if (
            wrong_path(name)
            or is_junk(name)
            or name != name.strip()
            or name == CSV_NAME
            or "/./" in name
            or "//" in name
        ):
            name = f"renamed/{numbered(number, name)}"
            renamed += 1
        try:
            images.add_file(file)
        except PackError as error:
            if bad is not None:
                bad.add(where, f"names an image that is not there: {error}")
                continue
            raise PackError(f"{where}: {error}") from error
        images.rows.append(Image(name, normal_label(label), part))
    if renamed:
        images.warnings.append(
            f"{count(renamed, 'image')} got another name in the batch, renamed/<number>-<name>: the service would "
            "refuse or leave out the path."
        )


def rows_of(file: Path) -> Iterator[Row]:
    """The lines of the file (UTF-8, with or without a byte order mark). Raises PackError that names the line."""
    reader = None
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, strict=True)
            columns = _header(next(reader, []), file)
            for cells in reader:
                if cells:
                    yield _row(cells, columns, reader.line_num, file)
    except OSError as error:
        raise PackError(f"The file {show(file)} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise PackError(f"{show(file)} is not UTF-8; save it as “CSV UTF-8”.") from error
    except csv.Error as error:
        line = reader.line_num if reader else 1
        raise PackError(f"Line {line} of {show(file)} is not valid CSV: {error}.") from error


def _header(cells: list[str], file: Path) -> list[str]:
    columns = [cell.strip().lower() for cell in cells]
    if columns in _COLUMNS:
        return columns
    found = show(",".join(cells)) if any(columns) else "empty"
    said = f"The first line of {show(file)} is {found}; it must be {_EXAMPLE}."
    for character, called in _SEPARATORS.items():
        if len(columns) == 1 and character in columns[0]:
            raise PackError(f"{said} Its columns are parted by {called}: save it with commas.")
    if len(columns) > 1 and "." in columns[0]:
        raise PackError(f"{said} It has no header: put one above the first image.")
    raise PackError(f"{said} Rename, reorder or leave out columns until it is.")


def _row(cells: list[str], columns: list[str], line: int, file: Path) -> Row:
    if len(cells) != len(columns):
        raise PackError(f"Line {line} of {show(file)} has {len(cells)} cells instead of {len(columns)}.")
    split = cells[2].strip() if len(cells) == 3 else ""
    part = parts.part_of(split)
    if split and not part:
        raise PackError(
            f"Line {line} of {show(file)} has the split {show(split)}; it must be train, test, validation or empty."
        )
    if not cells[0].strip():
        raise PackError(f"Line {line} of {show(file)} names no file.")
    return Row(line, cells[0].strip(), cells[1], part)
