"""Lines of a list of URLs and labels."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perennial.pack import parts
from perennial.pack.errors import PackError
from perennial.pack.remote.address import is_remote_address
from perennial.pack.text import quote_name

MAX_LIST_BYTES = 128 << 20
LIST_SUFFIXES = (".csv", ".tsv", ".txt")
UNKNOWN_PART = "?"
_COLUMNS = ("url", "label", "split")


class UrlListRow(NamedTuple):
    """A line of a URL list: a URL, its label and its part.

    Attributes:
        part: train, test, validation, UNKNOWN_PART or empty.
        where: file and line.
    """

    url: str
    label: str
    part: str
    where: str


FORM = (
    "each line is a URL and a label, such as https://example.org/1.jpg,cat, below the first "
    "line url,label"
)


def is_address_or_url_list(source: Path | str) -> bool:
    """Return True if a source is a cloud storage address or a list of URLs."""
    if isinstance(source, str):
        return is_remote_address(source)
    is_list = source.suffix.lower() in LIST_SUFFIXES and source.is_file()
    return is_list and looks_like_url_list(source)


def looks_like_url_list(file: Path) -> bool:
    """Return True if a text file begins like a list of image URLs."""
    try:
        with file.open(encoding="utf-8-sig", errors="replace") as text:
            # Bounded, because a binary file may have no line end.
            first = text.readline(10_000).strip().lower()
    except OSError:
        return False
    cells = [cell.strip().strip('"') for cell in first.replace("\t", ",").split(",")]
    return first.startswith(("https://", "http://")) or ("url" in cells and "label" in cells)


def iterate_url_list_rows(file: Path) -> Iterator[UrlListRow]:
    """Yield the lines of a file with a list of URLs. Raises PackError if it cannot be read."""
    try:
        if file.stat().st_size > MAX_LIST_BYTES:
            raise PackError(
                f"{quote_name(file)} has more than {MAX_LIST_BYTES:,} bytes. Divide it."
            )
        with file.open(encoding="utf-8-sig", newline="") as text:
            first = text.readline()
            text.seek(0)
            # A tab decides, because a URL may hold commas, but no tab.
            reader = csv.reader(text, delimiter="\t" if "\t" in first else ",")
            columns: list[str] | None = None
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if columns is None:
                    names = [cell.strip().lower() for cell in cells]
                    # Without a heading, the first line is an entry like the others.
                    columns = names if "url" in names else [*_COLUMNS]
                    if "url" in names:
                        if "label" not in names:
                            raise PackError(
                                f"The first line of {quote_name(file)} names no column label: "
                                f"{FORM}."
                            )
                        continue
                yield _build_url_list_row(
                    cells, columns, f"Line {reader.line_num} of {quote_name(file.name)}"
                )
    except OSError as error:
        raise PackError(f"The file {quote_name(file)} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise PackError(f"{quote_name(file)} is not UTF-8; save it as “CSV UTF-8”.") from error
    except csv.Error as error:
        raise PackError(f"{quote_name(file)} is not valid CSV: {error}.") from error


def _build_url_list_row(cells: list[str], columns: list[str], where: str) -> UrlListRow:
    cell_by_column = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
    split = cell_by_column.get("split", "")
    part = parts.parse_dataset_part(split)
    return UrlListRow(
        cell_by_column.get("url", ""),
        cell_by_column.get("label", ""),
        part if part or not split else UNKNOWN_PART,
        where,
    )
