"""A label table and its images, in any format that `perennial.reading_rules.tables` reads.

A table that is sent on its own names images by paths relative to its folder, or by file names below
it.
"""

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perennial.pack import parts
from perennial.pack.bad import BadEntryCollector
from perennial.pack.errors import PackError
from perennial.pack.files import FileImages, SourceFolder
from perennial.pack.images import BatchImageEntry
from perennial.pack.labels import convert_label_to_stripped_nfc
from perennial.pack.names import (
    CSV_NAME,
    build_sortable_numbered_name,
    explain_invalid_path,
    is_junk_path,
    normalise_to_nfc,
)
from perennial.pack.text import format_count_with_noun, quote_name
from perennial.reading_rules.entries import (
    BatchReadingOptions,
    LeftOutLabelTableEntry,
    Part,
    UnreadableBatchError,
)
from perennial.reading_rules.names import is_clearly_no_image
from perennial.reading_rules.options import (
    convert_reading_option_values_to_texts,
    parse_reading_option_texts,
)
from perennial.reading_rules.tables import (
    MAX_TABLE_BYTES,
    find_label_table,
    may_be_label_table_name,
    resolve_label_table_images,
)
from perennial.reading_rules.tables.images import MISSING, ImageNameIndex

_MOST_SAID = 5
# Next to MISSING and AMBIGUOUS, the codes of ImageNameIndex.
_OUTSIDE = -3
MOST_ENTRIES = 10_000_000
"""Maximum number of entries, beyond what any service accepts in one batch."""


class TableImages(FileImages):
    """Labelled image files that a label table (CSV or JSON) names."""

    def __init__(
        self,
        source: Path,
        *,
        image: str = "",
        label: str = "",
        max_bad: str | float = "",
        allow_outside: bool = False,
    ) -> None:
        """Read the table without reading images.

        Args:
            image, label: columns of the table.
            max_bad: largest allowed share of bad entries.

        Raises:
            PackError: the table cannot be used, or too many entries are bad.
        """
        super().__init__(f"the list {quote_name(source.name)}", source.parent)
        root = SourceFolder(source.parent, allow_outside)
        options = parse_reading_options_of_caller(
            {"image": image, "label": label, "max_bad": max_bad, "table": source.name}
        )
        images = _DiskImageNames(root)
        try:
            table = find_label_table(
                [source.name],
                lambda _: read_label_table_bytes(source),
                options,
                remaining=[0],
                images=images,
                most=MOST_ENTRIES,
            )
            # An explicitly named table is either found or raises an error.
            assert table is not None
            resolved = resolve_label_table_images(table, images.names, (), options, images=images)
        except UnreadableBatchError as error:
            raise PackError(str(error)) from error
        as_taken = parts.map_dataset_parts_to_splits(
            (placed.row.part for placed in resolved.placed), quote_name(source)
        )
        rows = (
            (images.names[n], row.label, as_taken[row.part], row.where)
            for n, row in resolved.placed
        )
        add_table_images(self, rows, root)
        self.warnings += describe_left_out_table_entries([*resolved.bad, *resolved.unlabelled])


class _DiskImageNames(ImageNameIndex):
    """Finds the images named by a label table on disk, relative to the table or anywhere in the
    folder.
    """

    def __init__(self, root: SourceFolder) -> None:
        self.names: list[str] = []
        super().__init__(self.names, ())
        self._root = root
        self._numbers: dict[str, int] = {}
        self._found: dict[str, int] = {}
        self._walked: list[str] = []
        self._in_folder: ImageNameIndex | None = None

    def find_image_number(self, name: str, folder: str = "", part: Part = "") -> int:
        """Find an image named by the table on disk, and return its number."""
        # Many rows may name one image, and each look at the disk takes time.
        number = self._found.get(name)
        if number is None:
            number = self._found[name] = self._find_image_number_on_disk(name, folder, part)
        return number

    def get_name_of_image_folder(self, number: int) -> str:
        """Return the name of the folder that contains an image found on disk."""
        return self.names[number].rpartition("/")[0].rpartition("/")[2]

    def describe_lookup_failure(self, name: str, code: int) -> str:
        """Explain why no image on disk was found for a name in the table."""
        where = quote_name(self._root.folder)
        if code == _OUTSIDE:
            return (
                f"names {quote_name(name)}, which lies out of the folder {where}; "
                f"allow_outside=True sends it, too"
            )
        return (
            f"names {quote_name(name)}, which is not in the folder {where}"
            if code == MISSING
            else super().describe_lookup_failure(name, code)
        )

    def _find_image_number_on_disk(self, name: str, folder: str, part: Part) -> int:
        path = name.replace("\\", "/").removeprefix("./")
        full_path = os.path.join(self._root.folder, path)  # noqa: PTH118  # pathlib adds 5 µs per file
        is_outside = False
        if "://" not in path and "\0" not in path and os.path.isfile(full_path):  # noqa: PTH113
            if self._root.allow_outside or self._root.is_inside_root(full_path):
                return self._get_or_add_path_number(posixpath.normpath(path))
            is_outside = True
        # Walked only if a path is not found as it is, because large folders take seconds.
        if self._in_folder is None:
            self._walked = [path for path in self._root.list_files() if _may_be_image(path)]
            self._in_folder = ImageNameIndex(self._walked, range(len(self._walked)))
        index = self._in_folder.find_image_number(name, folder, part)
        return (
            self._get_or_add_path_number(self._walked[index])
            if index >= 0
            else _OUTSIDE
            if is_outside
            else index
        )

    def _get_or_add_path_number(self, path: str) -> int:
        number = self._numbers.setdefault(path, len(self.names))
        if number == len(self.names):
            self.names.append(path)
        return number


def _may_be_image(path: str) -> bool:
    return not (is_junk_path(path) or is_clearly_no_image(path) or may_be_label_table_name(path))


def parse_reading_options_of_caller(options: Mapping[str, object]) -> BatchReadingOptions:
    """Convert a caller's keyword options for reading a batch. Raises PackError for invalid ones."""
    try:
        return parse_reading_option_texts(convert_reading_option_values_to_texts(options))
    except ValueError as error:
        raise PackError(str(error)) from error


def read_label_table_bytes(file: Path) -> bytes:
    """Read the bytes of a label table. Raises UnreadableBatchError if it is too large or
    unreadable.
    """
    try:
        with file.open("rb") as opened:
            # One byte more than allowed reveals a larger file without reading it.
            data = opened.read(MAX_TABLE_BYTES + 1)
    except OSError as error:
        raise UnreadableBatchError(
            f"The file {quote_name(file)} cannot be read: {error.strerror}."
        ) from error
    if len(data) > MAX_TABLE_BYTES:
        raise UnreadableBatchError(
            f"{quote_name(file)} is larger than {MAX_TABLE_BYTES:,} bytes.", "too_large"
        )
    return data


def describe_left_out_table_entries(entries: Sequence[LeftOutLabelTableEntry]) -> list[str]:
    """Describe the table's entries that were left out: how many, and the first ones."""
    if not entries:
        return []
    first = "; ".join(f"{where}: {reason}" for where, reason in entries[:_MOST_SAID])
    more = f"; and {len(entries) - _MOST_SAID:,} more" if len(entries) > _MOST_SAID else ""
    return [f"{format_count_with_noun(len(entries), 'entry', 'entries')} left out: {first}{more}."]


def add_table_images(
    images: FileImages,
    rows: Iterator[tuple[str, str, str, str]],
    root: SourceFolder,
    bad: BadEntryCollector | None = None,
) -> None:
    """Add the image files that a label table names, with labels and parts, sorted by path.

    A path that is not a valid archive name is replaced by a number.

    Raises:
        PackError: a path leaves the root; or, without `bad`, a file is missing or named twice.
    """
    place_by_name: dict[str, str] = {}
    renamed = 0
    # Sorted, so that the order of a table's rows does not change the bytes.
    for number, (path, label, part, where) in enumerate(sorted(rows)):
        # Composed: macOS writes decomposed names, and the service compares composed ones.
        name = normalise_to_nfc(path.replace("\\", "/").removeprefix("./"))
        if name in place_by_name:
            if bad is not None:
                bad.record_bad_entry(
                    where,
                    f"names {quote_name(path)}, which {place_by_name[name]} has named already",
                )
                continue
            raise PackError(
                f"{where} names {quote_name(path)}, which {place_by_name[name]} has named already. "
                f"Keep one of them."
            )
        place_by_name[name] = where
        file = path.replace("\\", "/")
        # Raises for a path out of the folder, before the file is looked at.
        root.resolve_named_path(file, where)
        if (
            explain_invalid_path(name)
            or is_junk_path(name)
            or name != name.strip()
            or name == CSV_NAME
            or "/./" in name
            or "//" in name
        ):
            name = f"renamed/{build_sortable_numbered_name(number, name)}"
            renamed += 1
        try:
            images.add_image_file(file)
        except PackError as error:
            if bad is not None:
                bad.record_bad_entry(where, f"names an image that is not there: {error}")
                continue
            raise PackError(f"{where}: {error}") from error
        images.rows.append(BatchImageEntry(name, convert_label_to_stripped_nfc(label), part))
    if renamed:
        images.warnings.append(
            f"{format_count_with_noun(renamed, 'image')} got another name in the batch, "
            f"renamed/<number>-<name>: the service would "
            "refuse or leave out the path."
        )
