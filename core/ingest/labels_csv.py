"""`labels.csv`: which file has which label, as `path,label[,split]` with a header line.

Text stays text: a cell such as `=1+1` is a label like any other and is never evaluated.
"""

import csv
import io
from typing import NamedTuple

from core.errors import ArchiveHostile, ArchiveTooLarge, LabelsInvalid
from core.ingest.limits import MAX_CSV_BYTES, MAX_NAME_BYTES, Limits
from core.ingest.names import label_of, path_of, show

_COLUMNS = (["path", "label"], ["path", "label", "split"])
_EXAMPLE = "“path,label” or “path,label,split” and then a line for each image, such as “images/1.jpg,cat”"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SPLITS = {"": False, "train": False, "test": True}


class Row(NamedTuple):
    """One labelled file; `line` counts from 1, `test` says which part it belongs to."""

    line: int
    path: str
    label: str
    test: bool


def parse(data: bytes, limits: Limits, name: str) -> list[Row]:
    """Parse a labels file (UTF-8, with or without a byte order mark).

    Raises LabelsInvalid naming the line; ArchiveTooLarge beyond the limits; ArchiveHostile for a path
    that climbs out of the archive.
    """
    if len(data) > MAX_CSV_BYTES:
        raise ArchiveTooLarge(f"{name} is larger than {MAX_CSV_BYTES} bytes.")
    if data.startswith(_UTF16):
        raise LabelsInvalid(f"{name} is not UTF-8 but UTF-16; save it as “CSV UTF-8”.")
    # Decoded line by line: one rare character would make a whole text four times its bytes.
    lines = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")
    reader = csv.reader(lines, strict=True)
    rows: list[Row] = []
    cache: dict[str, str] = {}
    wide = False
    try:
        for number, cells in enumerate(reader):
            line = reader.line_num
            if number == 0:
                header = [cell.strip().lower() for cell in cells]
                if header not in _COLUMNS:
                    raise LabelsInvalid(_wrong_header(cells, header, name))
                wide = len(header) == 3
                continue
            if not cells:
                continue
            if len(cells) != (3 if wide else 2):
                raise LabelsInvalid(
                    f"Line {line} of {name} has {len(cells)} cells instead of {3 if wide else 2}."
                )
            if len(rows) >= limits.entries:
                raise ArchiveTooLarge(f"{name} has more than {limits.entries} lines.")
            split = cells[2].strip().lower() if wide else ""
            if split not in _SPLITS:
                raise LabelsInvalid(
                    f"Line {line} of {name} has the split {show(split)}; it must be train, test or empty."
                )
            if cells[1] not in cache:
                cache[cells[1]] = label_of(cells[1], f"line {line} of {name}")
            rows.append(Row(line, _path(cells[0], line, name), cache[cells[1]], _SPLITS[split]))
    except UnicodeDecodeError as error:
        raise LabelsInvalid(f"{name} is not UTF-8 (after line {reader.line_num}).") from error
    except csv.Error as error:
        raise LabelsInvalid(f"Line {reader.line_num} of {name} is not valid CSV: {error}.") from error
    if not rows:
        raise LabelsInvalid(f"{name} lists no files.")
    return rows


def _wrong_header(cells: list[str], header: list[str], name: str) -> str:
    """What the first line is, what it must be, and what would make it so; `header`: the cells in small letters."""
    found = show(",".join(cells)) if any(header) else "empty"
    return f"The first line of {name} is {found}; it must be {_EXAMPLE}. {_remedy(header)}"


def _remedy(header: list[str]) -> str:
    for character, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and character in header[0]:
            return f"Its columns are parted by {called}: save it with commas."
    missing = [column for column in ("path", "label") if column not in header]
    if not missing:
        fitting = set(header) <= {"path", "label", "split"}
        return "Put the columns in this order, once each." if fitting else "Leave out the other columns."
    if len(header) > 1 and "." in header[0]:
        return "It has no header: put one above the first image."
    if len(header) == 2:
        return "Rename the columns: path is the file within the archive, label its class."
    return f"There is no column {' and no column '.join(missing)}."


def _path(cell: str, line: int, name: str) -> str:
    if len(cell) > MAX_NAME_BYTES:
        raise LabelsInvalid(f"The path in line {line} of {name} is longer than {MAX_NAME_BYTES} bytes.")
    try:
        return path_of(cell.strip())
    except ArchiveHostile as error:
        raise ArchiveHostile(f"Line {line} of {name}: {error.detail}") from error
