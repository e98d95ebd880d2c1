"""Hugging Face datasets as parquet: a column of images (their bytes and path), one of labels, parts by file name.

Labels and paths are read at once; image bytes by row group, once for their sizes (parquet keeps none) and once to be
sent. What the columns are is read from their declared types (`parquet_columns`).
"""

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perennial.pack import parts
from perennial.pack.bad import MAX_BAD, BadEntries
from perennial.pack.errors import PackError
from perennial.pack.extras import needed
from perennial.pack.files import Root, Seen
from perennial.pack.images import Image, Images
from perennial.pack.labels import normal_label
from perennial.pack.names import numbered
from perennial.pack.numbers import ClassNames
from perennial.pack.parquet_columns import Columns, columns_of
from perennial.pack.text import count, show

SUFFIX = ".parquet"
_BATCH_ROWS = 64
_RATIO = 100
"""A column may grow so many times when it is unpacked, as an archive may in the service; images hardly grow."""
_FREE_BYTES = 64 << 20
"""Of a column of a row group, for which its growth does not matter."""
_SAID = 200
"""Characters of an error of pyarrow that a message quotes."""
_OF_PYARROW = (OSError, ValueError, TypeError, LookupError, NotImplementedError, MemoryError, ArithmeticError)
"""Exceptions that pyarrow raises for files that are damaged or odd."""


class ParquetImages(Images):
    """The images of parquet files, in the order of the sorted files' names and then of their rows."""

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

        image, label: columns, where they are not called as usual; max_bad: the share of rows that may be bad. Raises
        PackError; ExtraMissing without pyarrow.
        """
        self._parquet = needed("pyarrow.parquet", "A parquet file")
        folder = source if source.is_dir() else source.parent
        root = Root(folder, allow_outside)
        files = parquet_among(root.walk()) if source.is_dir() else [source.name]
        super().__init__(f"{count(len(files), 'parquet file')} in {show(source.name)}")
        self._files = [root.path(file) for file in files]
        self._seen, self._columns = Seen(), list[Columns]()
        self._bad = BadEntries(self.origin, max_bad)
        self._rows_of: list[array[int]] = []  # per file, the rows that have a label
        self._unlabelled = 0
        part_of = parts.parts_of(files)
        for number, path in enumerate(self._files):
            self._seen.add(path)
            with self._opened(number) as file:
                self._columns.append(columns_of(file.schema_arrow, path, image, label))
                self._list(file, number, part_of[number])
        found = {row.part for row in self.rows}
        self._check()
        as_taken = parts.joined(found, show(source))
        self.rows = [row._replace(part=as_taken[row.part]) for row in self.rows]

    def _check(self) -> None:
        """Say what is left out, of what is known by now. Raises PackError where too much is."""
        self.warnings = self._bad.check(len(self.rows))
        if not self.rows:
            raise PackError(f"There is no labelled image in {self.origin}.")
        if self._unlabelled:
            self.warnings.append(f"{count(self._unlabelled, 'row')} without a label left out.")

    def _list(self, file: Any, number: int, part: str) -> None:
        columns, kept = self._columns[number], array("l")
        classes, shown = ClassNames(columns.names, "the schema"), show(self._files[number])
        at = 0
        for batch in file.iter_batches(columns=columns.read, use_threads=False):
            labels = batch.column(columns.label).to_pylist()
            for label, path in zip(labels, columns.paths_in(batch), strict=True):
                where = f"Row {at} of {shown}"
                try:
                    name = columns.name_of(label, classes, where)
                    if name is None:
                        self._unlabelled += 1
                    else:
                        self.rows.append(
                            Image(numbered(len(self.rows), path or ""), normal_label(name), part)
                        )
                        kept.append(at)
                except PackError as error:
                    self._bad.add(where, str(error).removeprefix(where).strip())
                at += 1
        self._rows_of.append(kept)

    def sizes(self) -> "array[int]":
        """Reads the column of images once, and leaves out rows without one."""
        sizes, rows, at = array("q"), list[Image](), 0
        for number, kept in enumerate(self._rows_of):
            there = array("l")
            with self._opened(number) as file:
                for row, content in zip(kept, self._labelled(file, number, 0), strict=True):
                    if content:
                        there.append(row)
                        rows.append(self.rows[at])
                        sizes.append(len(content))
                    else:
                        self._bad.add(
                            f"Row {row} of {show(self._files[number])}",
                            "has no image in it, perhaps only its path: embed the images when the parquet is written",
                        )
                    at += 1
            self._rows_of[number] = there
        self.rows[:] = rows
        self._check()
        return sizes

    def contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """From the row group that holds image `first` on."""
        return ((content or b"",) for content in self._bytes(first))

    def _bytes(self, first: int) -> Iterator[bytes | None]:
        for number, kept in enumerate(self._rows_of):
            if first < len(kept):
                with self._opened(number) as file:
                    yield from self._labelled(file, number, first)
            first = max(0, first - len(kept))

    def _labelled(self, file: Any, number: int, first: int) -> Iterator[bytes | None]:
        """The bytes of a file's labelled rows from the `first` one on, row group by row group."""
        kept, columns, at, begin = self._rows_of[number], self._columns[number], first, 0
        for group in range(file.num_row_groups):
            end = begin + file.metadata.row_group(group).num_rows
            row = begin
            begin = end
            if at == len(kept) or kept[at] >= end:
                continue
            batches = file.iter_batches(_BATCH_ROWS, [group], [columns.bytes], use_threads=False)
            for batch in batches:
                values = columns.bytes_in(batch)
                while at < len(kept) and kept[at] < row + len(values):
                    yield values[kept[at] - row].as_py()
                    at += 1
                row += len(values)

    @contextmanager
    def _opened(self, number: int) -> Iterator[Any]:
        """A file that is as it was, at its opening and at its end; pyarrow's errors in words."""
        path = self._files[number]
        try:
            with Path(path).open("rb") as file:
                self._seen.check(number, path, file.fileno())
                opened = self._parquet.ParquetFile(file)
                _require_small(opened.metadata, path)
                yield opened
                self._seen.check(number, path, file.fileno())
        except PackError:
            raise
        except _OF_PYARROW as error:
            said = show(str(error).partition("\n")[0][:_SAID])
            raise PackError(
                f"The file {show(path)} is damaged, or no parquet that can be read: {said}."
            ) from error


def _require_small(metadata: Any, path: str) -> None:
    """Raises PackError where a column says that it grows far more than images do."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            packed, whole = max(1, column.total_compressed_size), column.total_uncompressed_size
            if whole > _FREE_BYTES and whole > _RATIO * packed:
                raise PackError(
                    f"The column {show(column.path_in_schema)} of {show(path)} grows {whole // packed:,} times when it"
                    f" is unpacked; {_RATIO} times are allowed. Write the file again without images of one byte"
                    " repeated."
                )


def parquet_among(names: Iterable[str]) -> list[str]:
    """Those of a folder's files that end like parquet."""
    return [name for name in names if name.endswith(SUFFIX)]
