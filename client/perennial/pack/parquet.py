"""Hugging Face datasets as parquet: a column of images (their bytes and path), one of labels, parts by file name.

Labels and paths are read at once; image bytes by row group, once for their sizes (parquet keeps none) and once to be
sent. Names of classes stand in the schema's metadata, under `huggingface`.
"""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perennial.pack import parts
from perennial.pack.errors import PackError
from perennial.pack.extras import needed
from perennial.pack.files import Root, Seen
from perennial.pack.images import Image, Images
from perennial.pack.labels import normal_label
from perennial.pack.names import numbered
from perennial.pack.numbers import ClassNames
from perennial.pack.text import count, listed, show

SUFFIX = ".parquet"
_BATCH_ROWS = 64
_IMAGE_COLUMNS, _LABEL_COLUMNS = ("image", "img"), ("label", "labels", "class", "fine_label")


@dataclass(frozen=True)
class _Columns:
    """bytes, path: of the image, as paths of leaves (no path: empty); label: column; names: of the classes."""

    bytes: str
    path: str
    label: str
    names: Sequence[str] | None


class ParquetImages(Images):
    """The images of parquet files, in the order of the sorted files' names and then of their rows."""

    def __init__(
        self,
        source: Path,
        *,
        image: str | None = None,
        label: str | None = None,
        allow_outside: bool = False,
    ) -> None:
        """Read schemas, labels and names.

        image, label: columns, where they are not called as usual. Raises PackError; ExtraMissing without pyarrow.
        """
        self._parquet = needed("pyarrow.parquet", "A parquet file")
        folder = source if source.is_dir() else source.parent
        root = Root(folder, allow_outside)
        files = parquet_among(root.walk()) if source.is_dir() else [source.name]
        super().__init__(f"{count(len(files), 'parquet file')} in {show(source.name)}")
        self._files = [root.path(file) for file in files]
        self._seen, self._columns = Seen(), list[_Columns]()
        self._rows_of: list[array[int]] = []  # per file, the rows that have a label
        self._unlabelled = 0
        part_of = parts.parts_of(files)
        for number, path in enumerate(self._files):
            self._seen.add(path)
            with self._opened(number) as file:
                self._columns.append(_columns(file.schema_arrow, path, image, label))
                self._list(file, number, part_of[number])
        found = {row.part for row in self.rows}
        if not self.rows:
            raise PackError(f"The parquet files in {show(source)} have no labelled image.")
        as_taken = parts.joined(found, show(source))
        self.rows = [row._replace(part=as_taken[row.part]) for row in self.rows]
        if self._unlabelled:
            self.warnings.append(f"{count(self._unlabelled, 'row')} without a label left out.")

    def _list(self, file: Any, number: int, part: str) -> None:
        columns, kept = self._columns[number], array("l")
        classes = ClassNames(columns.names, "the schema")
        wanted = [columns.label] + ([columns.path] if columns.path else [])
        at = 0
        for batch in file.iter_batches(columns=wanted, use_threads=False):
            labels = batch.column(columns.label).to_pylist()
            paths = _leaf(batch, columns.path).to_pylist() if columns.path else [None] * len(labels)
            for label, path in zip(labels, paths, strict=True):
                if label is None or label == -1:
                    self._unlabelled += 1
                else:
                    name = classes.label(label, f"Row {at} of {show(self._files[number])}")
                    self.rows.append(Image(numbered(len(self.rows), path or ""), normal_label(name), part))
                    kept.append(at)
                at += 1
        self._rows_of.append(kept)

    def sizes(self) -> "array[int]":
        """Reads the column of images once."""
        return array("q", (len(content) for content in self._bytes(0)))

    def contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """From the row group that holds image `first` on."""
        return ((content,) for content in self._bytes(first))

    def _bytes(self, first: int) -> Iterator[bytes]:
        for number, kept in enumerate(self._rows_of):
            if first < len(kept):
                with self._opened(number) as file:
                    yield from self._labelled(file, number, first)
            first = max(0, first - len(kept))

    def _labelled(self, file: Any, number: int, first: int) -> Iterator[bytes]:
        """The bytes of a file's labelled rows from the `first` one on, row group by row group."""
        kept, column, at, begin = self._rows_of[number], self._columns[number].bytes, first, 0
        for group in range(file.num_row_groups):
            end = begin + file.metadata.row_group(group).num_rows
            row = begin
            begin = end
            if at == len(kept) or kept[at] >= end:
                continue
            batches = file.iter_batches(_BATCH_ROWS, [group], [column], use_threads=False)
            for batch in batches:
                values = _leaf(batch, column)
                while at < len(kept) and kept[at] < row + len(values):
                    content = values[kept[at] - row].as_py()
                    if content is None:
                        raise PackError(
                            f"Row {kept[at]} of {show(self._files[number])} has no image in it, perhaps only its "
                            "path. Embed the images when the parquet is written, or pack the files themselves."
                        )
                    yield content
                    at += 1
                row += len(values)

    @contextmanager
    def _opened(self, number: int) -> Iterator[Any]:
        """A file that is as it was, at its opening and at its end; pyarrow's errors in words."""
        path = self._files[number]
        try:
            with Path(path).open("rb") as file:
                self._seen.check(number, path, file.fileno())
                yield self._parquet.ParquetFile(file)
                self._seen.check(number, path, file.fileno())
        except PackError:
            raise
        except (OSError, ValueError) as error:
            raise PackError(f"The file {show(path)} is damaged, or no parquet: {error}.") from error


def parquet_among(names: Iterable[str]) -> list[str]:
    """Those of a folder's files that end like parquet."""
    return [name for name in names if name.endswith(SUFFIX)]


def _leaf(batch: Any, path: str) -> Any:
    """The values of a leaf such as `image.bytes`."""
    column, *fields = path.split(".")
    values = batch.column(column)
    for field in fields:
        values = values.field(field)
    return values


def _columns(schema: Any, path: str, image: str | None, label: str | None) -> _Columns:
    """Which columns hold image and label. Raises PackError naming those that there are."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):
        features = {}
    images = [name for name, feature in features.items() if _is_a(feature, "Image")]
    labels = [name for name, feature in features.items() if _is_a(feature, "ClassLabel")]
    image = _chosen(image, images, _IMAGE_COLUMNS, "image", schema.names, path)
    label = _chosen(label, labels, _LABEL_COLUMNS, "label", schema.names, path)
    kind = schema.field(image).type
    inner = [kind.field(i).name for i in range(kind.num_fields)] if str(kind).startswith("struct") else []
    if inner and "bytes" not in inner:
        raise PackError(f"The column {show(image)} of {show(path)} has no bytes, but {listed(inner)}.")
    if not inner and "binary" not in str(kind):
        raise PackError(f"The column {show(image)} of {show(path)} is {kind}; images are bytes of files.")
    if "int" not in str(schema.field(label).type) and "string" not in str(schema.field(label).type):
        raise PackError(
            f"The column {show(label)} of {show(path)} is {schema.field(label).type}; labels are numbers or names."
        )
    return _Columns(
        f"{image}.bytes" if inner else image,
        f"{image}.path" if "path" in inner else "",
        label,
        features.get(label, {}).get("names") if label in labels else None,
    )


def _is_a(feature: object, kind: str) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == kind


def _chosen(
    wanted: str | None, by_type: list[str], usual: Sequence[str], what: str, columns: list[str], path: str
) -> str:
    if wanted is not None and wanted in columns:
        return wanted
    candidates = by_type or [name for name in usual if name in columns][:1]
    if wanted is None and len(candidates) == 1 and candidates[0] in columns:
        return candidates[0]
    found = (
        f"several columns of {what}s"
        if wanted is None and candidates
        else f"no column {show(wanted or what)}"
    )
    raise PackError(
        f"{show(path)} has {found}; its columns are {listed(columns, 20)}. Say which with {what}=."
    )
