"""A batch as the bytes that are sent: a tar whose every byte is known from names and sizes alone.

So a stream that was cut goes on from any byte without a temporary file, and the same source gives the same bytes.
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
from perennial.pack.batch import Batch
from perennial.pack.errors import PackError, SourceChanged
from perennial.pack.images import Image, Images
from perennial.pack.names import CSV_NAME
from perennial.pack.text import count, show

_USUAL_ENTRIES, _USUAL_CLASSES = 500_000, 10_000
"""PERENNIAL_MAX_ENTRIES and PERENNIAL_MAX_CLASSES of a service that does not set them."""
_MAX_CSV_BYTES = 32 << 20
_CLASSES_SAID = 3


class TarBatch(Batch):
    """Labelled images as one tar, made while it is read."""

    def __init__(self, images: Images) -> None:
        """Raises PackError for labels that the service would refuse."""
        labels.check(images.rows, images.origin)
        self._images = images
        if images.listed:
            _labels_csv(images)  # one that is too large is told before an image is read

    @property
    def size(self) -> int:
        """See Batch."""
        return self._starts[-1] + (_entry_bytes(CSV_NAME, len(self._csv)) if self._csv else 0) + len(tar.END)

    @property
    def warnings(self) -> list[str]:
        """See Batch; of images that are fetched while they are sent, also what was found then."""
        return self._images.warnings + _beyond_usual(self._images.rows)

    def identity(self) -> str:
        """See Batch; of images that are elsewhere by their versions, so that they are not read for it."""
        return self._images.identity() or super().identity()

    def describe(self) -> str:
        """See Batch."""
        rows = self._images.rows
        of = Counter(row.label for row in rows)
        named = [f"{show(label)} {number:,}" for label, number in sorted(of.items())]
        more = f" and {len(named) - _CLASSES_SAID:,} more" if len(named) > _CLASSES_SAID else ""
        held = sum(row.part == "test" for row in rows)
        split = (
            f"{len(rows) - held:,} to learn and {held:,} held out"
            if held
            else "of which the service holds out a share"
        )
        return (
            f"{count(len(rows), 'image')} of {count(len(of), 'class', 'classes')} "
            f"({', '.join(named[:_CLASSES_SAID])}{more}), {split}, from {self._images.origin}."
        )

    @property
    def count(self) -> int:
        """Images, those that cannot be read among them until they were."""
        return len(self._images.rows)

    def labelled(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield name, label and bytes of each image.

        Raises:
            SourceChanged: a file is not what it was.
            PackError: a file cannot be read.
        """
        sizes, rows = self._sizes, self._images.rows  # sizes first: they may leave rows out
        contents = self._images.contents(0) if rows else iter(())
        for row, size, content in zip(rows, sizes, contents, strict=False):
            yield row.name, row.label, b"".join(_exactly(content, size, row.name))

    @cached_property
    def _sizes(self) -> "array[int]":
        rows = len(self._images.rows)
        sizes = self._images.sizes()
        if len(sizes) < rows:  # images that cannot be read are left out
            labels.check(self._images.rows, self._images.origin)
        return sizes

    @cached_property
    def _csv(self) -> bytes | None:
        assert len(self._sizes) == len(self._images.rows)  # asked for first: it may leave rows out
        return _labels_csv(self._images) if self._images.listed else None

    @cached_property
    def _starts(self) -> "array[int]":
        """Where each image's header begins, and where the last image ends."""
        entries = map(_entry_bytes, (row.name for row in self._images.rows), self._sizes)
        return array("q", accumulate(entries, initial=0))

    def _bytes(self, start: int) -> Iterator[bytes]:
        first = bisect_right(self._starts, start) - 1
        skip = start - self._starts[first]
        for piece in self._entries(first):
            if skip < len(piece):
                yield piece[skip:]
            skip = max(0, skip - len(piece))

    def _entries(self, first: int) -> Iterator[bytes]:
        rows, sizes = self._images.rows, self._sizes
        contents = self._images.contents(first) if first < len(rows) else iter(())
        for number, content in enumerate(contents, start=first):
            yield tar.header(rows[number].name, sizes[number])
            yield from _exactly(content, sizes[number], rows[number].name)
            yield bytes(tar.padding(sizes[number]))
        if self._csv is not None:
            yield tar.header(CSV_NAME, len(self._csv)) + self._csv + bytes(tar.padding(len(self._csv)))
        yield tar.END


def _entry_bytes(name: str, size: int) -> int:
    return tar.header_bytes(name, size) + size + tar.padding(size)


def _exactly(content: Iterable[bytes], size: int, name: str) -> Iterator[bytes]:
    """The pieces of an image, which must have as many bytes as its header has said."""
    read = 0
    for piece in content:
        read += len(piece)
        if read > size:
            break
        yield piece
    if read != size:
        raise SourceChanged(
            f"The image {show(name)} had {size:,} bytes when it was listed, and now it has "
            f"{'more' if read > size else f'{read:,}'}. Open the batch again."
        )


def _labels_csv(images: Images) -> bytes:
    """`path,label[,split]` of all images. Raises PackError where the service would find it too large."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    parts = any(row.part for row in images.rows)
    writer.writerow(["path", "label", "split"] if parts else ["path", "label"])
    for row in images.rows:
        writer.writerow(row if parts else row[:2])
    data = out.getvalue().encode()
    if len(data) > _MAX_CSV_BYTES:
        raise PackError(
            f"The list of labels of {images.origin} takes {len(data):,} bytes; the service reads {_MAX_CSV_BYTES:,}. "
            "Pack it in several batches."
        )
    return data


def _beyond_usual(rows: list[Image]) -> list[str]:
    """What a service refuses unless its settings are others."""
    classes = len({row.label for row in rows})
    return [
        f"{what}; a service accepts {most:,} in a batch unless its settings say otherwise."
        for number, most, what in (
            (len(rows), _USUAL_ENTRIES, count(len(rows), "image")),
            (classes, _USUAL_CLASSES, count(classes, "class", "classes")),
        )
        if number > most
    ]
