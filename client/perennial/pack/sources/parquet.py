"""Hugging Face datasets as parquet: a column of images (bytes and path), one of labels, parts by
file.

Labels and paths are read at once. Image bytes are read by row group: once for their sizes, which
parquet does not store, and once to be sent. Columns are identified by their declared types
(`parquet_columns`).
"""

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perennial.pack import parts
from perennial.pack.bad import MAX_BAD, BadEntryCollector
from perennial.pack.errors import PackError
from perennial.pack.extras import import_optional_module_or_raise
from perennial.pack.files import ListedFileStates, SourceFolder
from perennial.pack.images import BatchImageEntry, ImageSource
from perennial.pack.labels import convert_label_to_stripped_nfc
from perennial.pack.names import build_sortable_numbered_name
from perennial.pack.sources.numbers import NumberedClassNames
from perennial.pack.sources.parquet_columns import ParquetColumns, find_image_and_label_columns
from perennial.pack.text import format_count_with_noun, quote_name

SUFFIX = ".parquet"
# Few rows at once, because each is a whole image in memory.
_BATCH_ROWS = 64
_RATIO = 100
"""Maximum compression ratio of a column, as for archives in the service; images hardly compress."""
_FREE_BYTES = 64 << 20
"""Bytes of a column in a row group below which the ratio is not checked."""
_SAID = 200
"""Maximum characters quoted from an error of pyarrow."""
_OF_PYARROW = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    NotImplementedError,
    MemoryError,
    ArithmeticError,
)
"""Exceptions that pyarrow raises for damaged or unusual files."""


class ParquetImages(ImageSource):
    """Labelled images in parquet files, ordered by file name and row."""

    def __init__(
        self,
        source: Path,
        *,
        image: str | None = None,
        label: str | None = None,
        max_bad: float = MAX_BAD,
        allow_outside: bool = False,
    ) -> None:
        """Read schemas, labels and names.

        Args:
            image, label: columns, if they have unusual names.
            max_bad: largest allowed share of bad rows.

        Raises:
            PackError: the files cannot be used, or too many rows are bad.
            ExtraMissing: pyarrow is not installed.
        """
        self._parquet = import_optional_module_or_raise("pyarrow.parquet", "A parquet file")
        folder = source if source.is_dir() else source.parent
        root = SourceFolder(folder, allow_outside)
        files = find_parquet_files(root.list_files()) if source.is_dir() else [source.name]
        super().__init__(
            f"{format_count_with_noun(len(files), 'parquet file')} in {quote_name(source.name)}"
        )
        self._files = [root.resolve_named_path(file) for file in files]
        self._seen, self._columns = ListedFileStates(), list[ParquetColumns]()
        self._bad = BadEntryCollector(self.origin, max_bad)
        self._rows_of: list[array[int]] = []  # for each file, the rows that have a label
        self._unlabelled = 0
        part_of = parts.find_dataset_parts_of_files(files)
        for number, path in enumerate(self._files):
            self._seen.record_file_state(path)
            with self._open_parquet_file(number) as file:
                self._columns.append(
                    find_image_and_label_columns(file.schema_arrow, path, image, label)
                )
                self._add_labelled_rows_of_file(file, number, part_of[number])
        # After all files: only parts with labelled rows decide how the batch is split.
        parts_present = {row.part for row in self.rows}
        self._check_bad_share_and_set_warnings()
        as_taken = parts.map_dataset_parts_to_splits(parts_present, quote_name(source))
        self.rows = [row._replace(part=as_taken[row.part]) for row in self.rows]

    def _check_bad_share_and_set_warnings(self) -> None:
        """Update the warnings about parquet rows left out. Raises PackError if there are too many."""
        self.warnings = self._bad.check_bad_share_and_build_warning(len(self.rows))
        if not self.rows:
            raise PackError(f"There is no labelled image in {self.origin}.")
        if self._unlabelled:
            self.warnings.append(
                f"{format_count_with_noun(self._unlabelled, 'row')} without a label left out."
            )

    def _add_labelled_rows_of_file(self, file: Any, number: int, part: str) -> None:
        # An array of machine integers: a list of millions of ints takes several times the memory.
        columns, labelled_rows = self._columns[number], array("l")
        classes, file_name = (
            NumberedClassNames(columns.names, "the schema"),
            quote_name(self._files[number]),
        )
        at = 0
        for batch in file.iter_batches(columns=columns.label_and_path_columns, use_threads=False):
            labels = batch.column(columns.label).to_pylist()
            for label, path in zip(labels, columns.get_image_paths(batch), strict=True):
                where = f"Row {at} of {file_name}"
                try:
                    name = columns.get_class_of_label(label, classes, where)
                    if name is None:
                        self._unlabelled += 1
                    else:
                        self.rows.append(
                            BatchImageEntry(
                                build_sortable_numbered_name(len(self.rows), path or ""),
                                convert_label_to_stripped_nfc(name),
                                part,
                            )
                        )
                        labelled_rows.append(at)
                except PackError as error:
                    # A list of bad entries already names the place.
                    self._bad.record_bad_entry(where, str(error).removeprefix(where).strip())
                at += 1
        self._rows_of.append(labelled_rows)

    def collect_image_byte_sizes(self) -> "array[int]":
        """Read the image column once to determine all sizes, leaving out rows without an image."""
        sizes, rows, at = array("q"), list[BatchImageEntry](), 0
        for number, labelled_rows in enumerate(self._rows_of):
            rows_with_images = array("l")
            with self._open_parquet_file(number) as file:
                for row, content in zip(
                    labelled_rows,
                    self._iterate_images_of_labelled_rows(file, number, 0),
                    strict=True,
                ):
                    if content:
                        rows_with_images.append(row)
                        rows.append(self.rows[at])
                        sizes.append(len(content))
                    else:
                        self._bad.record_bad_entry(
                            f"Row {row} of {quote_name(self._files[number])}",
                            "has no image in it, perhaps only its path: embed the images when the "
                            "parquet is written",
                        )
                    at += 1
            self._rows_of[number] = rows_with_images
        self.rows[:] = rows
        self._check_bad_share_and_set_warnings()
        return sizes

    def iterate_image_contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Yield the bytes of the images in parquet files, from image `first` on."""
        return ((content or b"",) for content in self._read_images(first))

    def _read_images(self, first: int) -> Iterator[bytes | None]:
        for number, usable_rows in enumerate(self._rows_of):
            if first < len(usable_rows):
                with self._open_parquet_file(number) as file:
                    yield from self._iterate_images_of_labelled_rows(file, number, first)
            first = max(0, first - len(usable_rows))

    def _iterate_images_of_labelled_rows(
        self, file: Any, number: int, first: int
    ) -> Iterator[bytes | None]:
        """Yield the image bytes of a parquet file's labelled rows from the `first` one on."""
        labelled_rows, columns, at, begin = self._rows_of[number], self._columns[number], first, 0
        for group in range(file.num_row_groups):
            end = begin + file.metadata.row_group(group).num_rows
            row = begin
            begin = end
            # A row group without a wanted row is not read at all, which makes resuming cheap.
            if at == len(labelled_rows) or labelled_rows[at] >= end:
                continue
            batches = file.iter_batches(
                _BATCH_ROWS, [group], [columns.image_bytes_column], use_threads=False
            )
            for batch in batches:
                values = columns.select_image_bytes(batch)
                while at < len(labelled_rows) and labelled_rows[at] < row + len(values):
                    yield values[labelled_rows[at] - row].as_py()
                    at += 1
                row += len(values)

    @contextmanager
    def _open_parquet_file(self, number: int) -> Iterator[Any]:
        """Open a parquet file, checking that it has not changed. Raises PackError for pyarrow's
        errors.
        """
        path = self._files[number]
        try:
            with Path(path).open("rb") as file:
                self._seen.require_file_unchanged(number, path, file.fileno())
                # From the opened file and not its path, so that the check for changes holds for
                # what is read.
                opened = self._parquet.ParquetFile(file)
                _require_plausible_compression(opened.metadata, path)
                yield opened
                self._seen.require_file_unchanged(number, path, file.fileno())
        # A ValueError, which `_OF_PYARROW` would catch.
        except PackError:
            raise
        except _OF_PYARROW as error:
            reason = quote_name(str(error).partition("\n")[0][:_SAID])
            raise PackError(
                f"The file {quote_name(path)} is damaged, or no parquet that can be read: {reason}."
            ) from error


def _require_plausible_compression(metadata: Any, path: str) -> None:
    """Raise PackError if a parquet column is compressed so much that it can be no images."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            # From the metadata, before anything is unpacked.
            packed, unpacked_size = (
                max(1, column.total_compressed_size),
                column.total_uncompressed_size,
            )
            if unpacked_size > _FREE_BYTES and unpacked_size > _RATIO * packed:
                raise PackError(
                    f"The column {quote_name(column.path_in_schema)} of {quote_name(path)} grows "
                    f"{unpacked_size // packed:,} times when it"
                    f" is unpacked; {_RATIO} times are allowed. Write the file again without "
                    "images of one byte repeated."
                )


def find_parquet_files(names: Iterable[str]) -> list[str]:
    """Return the parquet files among a folder's files, by name."""
    return [name for name in names if name.endswith(SUFFIX)]
