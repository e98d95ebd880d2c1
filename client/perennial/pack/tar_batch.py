"""A batch as a tar whose layout follows from names and sizes alone.

An interrupted stream can therefore resume from any byte without a temporary file, and the same
source yields the same bytes.
"""

import csv
import io
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate

from perennial.pack import labels, tar
from perennial.pack.batch import PackedBatch
from perennial.pack.errors import PackError, SourceChanged
from perennial.pack.images import BatchImageEntry, ImageSource
from perennial.pack.names import CSV_NAME
from perennial.pack.text import format_count_with_noun, quote_name

_USUAL_ENTRIES, _USUAL_CLASSES = 500_000, 10_000
"""Defaults of the service's PERENNIAL_MAX_ENTRIES and PERENNIAL_MAX_CLASSES."""
# As many as the service reads of a label table.
_MAX_CSV_BYTES = 32 << 20
_CLASSES_SAID = 3


class GeneratedTarBatch(PackedBatch):
    """A batch of labelled images packed as a tar, which is generated while it is read."""

    def __init__(self, images: ImageSource) -> None:
        """Check the labels of the images.

        Raises:
            PackError: the service would refuse them.
        """
        labels.require_valid_labels_with_training_images(images.rows, images.origin)
        self._images = images
        if images.listed:
            # Build it now, so that a list that is too large raises before any image is read.
            _build_labels_csv(images)

    @property
    def size(self) -> int:
        """Size of the tar in bytes."""
        return (
            self._header_offsets[-1]
            + (
                _compute_tar_entry_length(CSV_NAME, len(self._labels_csv_content))
                if self._labels_csv_content
                else 0
            )
            + len(tar.END)
        )

    @property
    def warnings(self) -> list[str]:
        """Warnings about the batch; those about fetched images are complete only after reading."""
        return self._images.warnings + _build_usual_limit_warnings(self._images.rows)

    def identity(self) -> str:
        """Text that identifies the tar's bytes also in a later run, without reading all images."""
        return self._images.identity() or super().identity()

    def describe(self) -> str:
        """Describe the batch in a sentence: number of images, classes and origin."""
        rows = self._images.rows
        count_by_label = Counter(row.label for row in rows)
        label_counts = [
            f"{quote_name(label)} {number:,}" for label, number in sorted(count_by_label.items())
        ]
        more = (
            f" and {len(label_counts) - _CLASSES_SAID:,} more"
            if len(label_counts) > _CLASSES_SAID
            else ""
        )
        held_out = sum(row.part == "test" for row in rows)
        split = (
            f"{len(rows) - held_out:,} to learn and {held_out:,} held out"
            if held_out
            else "of which the service holds out a share"
        )
        return (
            f"{format_count_with_noun(len(rows), 'image')} of "
            f"{format_count_with_noun(len(count_by_label), 'class', 'classes')} "
            f"({', '.join(label_counts[:_CLASSES_SAID])}{more}), {split}, from "
            f"{self._images.origin}."
        )

    @property
    def count(self) -> int:
        """Number of images in the batch, including unreadable ones that have not been read yet."""
        return len(self._images.rows)

    def iterate_labelled_images(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield name, label and bytes of each image in the batch.

        Raises:
            SourceChanged: a file has changed.
            PackError: a file cannot be read.
        """
        # Compute the sizes first: that may remove rows.
        sizes, rows = self._image_byte_sizes, self._images.rows
        contents = self._images.iterate_image_contents(0) if rows else iter(())
        for row, size, content in zip(rows, sizes, contents, strict=False):
            yield (
                row.name,
                row.label,
                b"".join(_iterate_bytes_checking_size(content, size, row.name)),
            )

    @cached_property
    def _image_byte_sizes(self) -> "array[int]":
        rows = len(self._images.rows)
        sizes = self._images.collect_image_byte_sizes()
        if len(sizes) < rows:  # unreadable images were left out
            labels.require_valid_labels_with_training_images(self._images.rows, self._images.origin)
        return sizes

    @cached_property
    def _labels_csv_content(self) -> bytes | None:
        # Compute the sizes first: that may remove rows.
        assert len(self._image_byte_sizes) == len(self._images.rows)
        return _build_labels_csv(self._images) if self._images.listed else None

    @cached_property
    def _header_offsets(self) -> "array[int]":
        """Offset of each image's header in the tar, and the end of the last image."""
        entries = map(
            _compute_tar_entry_length,
            (row.name for row in self._images.rows),
            self._image_byte_sizes,
        )
        return array("q", accumulate(entries, initial=0))

    def _iterate_packed_bytes_from(self, start: int) -> Iterator[bytes]:
        # Skip to the entry that holds `start`: earlier images are not read again.
        first = bisect_right(self._header_offsets, start) - 1
        skip = start - self._header_offsets[first]
        for piece in self._iterate_tar_bytes_from_image(first):
            if skip < len(piece):
                yield piece[skip:]
            skip = max(0, skip - len(piece))

    def _iterate_tar_bytes_from_image(self, first: int) -> Iterator[bytes]:
        rows, sizes = self._images.rows, self._image_byte_sizes
        contents = self._images.iterate_image_contents(first) if first < len(rows) else iter(())
        for number, content in enumerate(contents, start=first):
            yield tar.build_tar_header(rows[number].name, sizes[number])
            yield from _iterate_bytes_checking_size(content, sizes[number], rows[number].name)
            yield bytes(tar.compute_tar_padding_length(sizes[number]))
        if self._labels_csv_content is not None:
            yield (
                tar.build_tar_header(CSV_NAME, len(self._labels_csv_content))
                + self._labels_csv_content
                + bytes(tar.compute_tar_padding_length(len(self._labels_csv_content)))
            )
        yield tar.END


def _compute_tar_entry_length(name: str, size: int) -> int:
    return tar.compute_tar_header_length(name, size) + size + tar.compute_tar_padding_length(size)


def _iterate_bytes_checking_size(content: Iterable[bytes], size: int, name: str) -> Iterator[bytes]:
    """Yield an image's bytes, and raise SourceChanged unless it has the size in its tar header."""
    read = 0
    for piece in content:
        read += len(piece)
        # One byte more than the header has promised would shift everything after it.
        if read > size:
            break
        yield piece
    if read != size:
        raise SourceChanged(
            f"The image {quote_name(name)} had {size:,} bytes when it was listed, and now it has "
            f"{'more' if read > size else f'{read:,}'}. Open the batch again."
        )


def _build_labels_csv(images: ImageSource) -> bytes:
    """Build the labels.csv of the batch (`path,label[,split]`). Raises PackError if it is too
    large.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    parts = any(row.part for row in images.rows)
    writer.writerow(["path", "label", "split"] if parts else ["path", "label"])
    for row in images.rows:
        writer.writerow(row if parts else row[:2])
    data = out.getvalue().encode()
    if len(data) > _MAX_CSV_BYTES:
        raise PackError(
            f"The list of labels of {images.origin} takes {len(data):,} bytes; the service reads "
            f"{_MAX_CSV_BYTES:,}. "
            "Pack it in several batches."
        )
    return data


def _build_usual_limit_warnings(rows: list[BatchImageEntry]) -> list[str]:
    """Return warnings if the batch exceeds limits that a service has by default."""
    # Warned of and not refused, because an operator may have raised these limits.
    classes = len({row.label for row in rows})
    return [
        f"{description}; a service accepts {limit:,} in a batch unless its settings say otherwise."
        for number, limit, description in (
            (len(rows), _USUAL_ENTRIES, format_count_with_noun(len(rows), "image")),
            (classes, _USUAL_CLASSES, format_count_with_noun(classes, "class", "classes")),
        )
        if number > limit
    ]
