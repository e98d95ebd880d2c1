"""The images of a split as pixels, decoded once by the service's own code."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.errors import ImageInvalid
from core.ingest.images import decode_image_to_square_pixels
from core.settings import Settings
from perennial.pack import PackError
from tools.compare_methods.base import CHANNELS, ComparisonBase
from tools.compare_methods.errors import ComparisonImpossible
from tools.compare_methods.folder import LabelledPhotos
from tools.compare_methods.split import BatchSplit

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DecodedLabelledImages:
    """Decoded training or held-out images uint8 [N, S, S, 3] with their labels."""

    pixels: Pixels
    labels: Labels
    numbers: list[int]


@dataclass(frozen=True)
class SelectedDecodedImages:
    """Selected images of decoded data, which are read from disk on access.

    Attributes:
        part: the part.
        rows: int64 [N], indices of its images.
    """

    part: DecodedLabelledImages
    rows: Labels

    def __len__(self) -> int:
        return len(self.rows)

    def copy_images_to_memory(self, index: Labels | slice) -> tuple[Pixels, Labels]:
        """Copy pixels uint8 [B, S, S, 3] and labels int64 [B] of selected images into memory."""
        rows = self.rows[index]
        return self.part.pixels[rows], self.part.labels[rows]


@dataclass(frozen=True)
class SplitPixels:
    """Decoded training and held-out images of a comparison, divided into batches of classes.

    Attributes:
        classes: classes in the order of learning, which labels index.
        batches: the labels of each batch.
        learned, held_out: images to learn and to measure on.
        decode_s: seconds for decoding one image.
        skipped: name and reason of each unreadable image.
    """

    classes: list[str]
    batches: list[list[int]]
    learned: DecodedLabelledImages
    held_out: DecodedLabelledImages
    decode_s: float
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def select_training_images_of_batches(self, batches: slice) -> SelectedDecodedImages:
        """Return the training images of some of the batches."""
        labels = [label for batch in self.batches[batches] for label in batch]
        return SelectedDecodedImages(
            self.learned, np.flatnonzero(np.isin(self.learned.labels, labels))
        )

    @property
    def all_held_out_images(self) -> SelectedDecodedImages:
        """All held-out images of the comparison."""
        return SelectedDecodedImages(self.held_out, np.arange(len(self.held_out.labels)))


def decode_split_images(
    photos: LabelledPhotos,
    split: BatchSplit,
    base: ComparisonBase,
    scratch: Path,
    progress: Callable[[int, int], None],
) -> SplitPixels:
    """Decode the training and held-out images of a split; unreadable ones are skipped.

    Args:
        photos: the images of the folder.
        split: numbers of the images.
        base: the base, which determines their size.
        scratch: a folder for the pixels, which are memory-mapped.
        progress: called with the images done and all images.

    Raises:
        ComparisonImpossible: a class has no readable image to learn from or to be measured on.
    """
    classes = split.classes
    skipped: list[tuple[str, str]] = []
    total = sum(
        len(numbers) for part in (split.learned, split.held_out) for numbers in part.values()
    )
    started_at = time.perf_counter()
    decoder = _PixelDecoder(photos, base, skipped, lambda done: progress(done, total))
    learned = decoder.decode_images_to_memmap(split.learned, classes, scratch / "learned.npy")
    held_out = decoder.decode_images_to_memmap(split.held_out, classes, scratch / "held-out.npy")
    seconds = (time.perf_counter() - started_at) / max(1, total)
    _require_readable_images_of_each_class(classes, learned, held_out)
    # `classes` is in the order of learning, so the labels of a batch follow one another.
    numbers = iter(range(len(classes)))
    batches = [[next(numbers) for _ in batch] for batch in split.batches]
    return SplitPixels(classes, batches, learned, held_out, seconds, skipped)


class _PixelDecoder:
    def __init__(
        self,
        photos: LabelledPhotos,
        base: ComparisonBase,
        skipped: list[tuple[str, str]],
        progress: Callable[[int], None],
    ) -> None:
        self._photos, self._base = photos, base
        self._skipped, self._progress = skipped, progress
        # The service's own limit, so that all rows leave out the same images.
        self._max_pixels = Settings().max_image_pixels
        self._done = 0

    def decode_images_to_memmap(
        self, numbers_of: Mapping[str, tuple[int, ...]], classes: list[str], file: Path
    ) -> DecodedLabelledImages:
        """Decode training or held-out images into a memory-mapped file."""
        size = self._base.size
        total = sum(len(numbers_of[label]) for label in classes)
        pixels = np.lib.format.open_memmap(file, "w+", np.uint8, (total, size, size, CHANNELS))
        labels: list[int] = []
        numbers: list[int] = []
        for label, name in enumerate(classes):
            for number in numbers_of[name]:
                image = self._decode_image_or_record_skip(number)
                if image is not None:
                    pixels[len(numbers)] = image
                    labels.append(label)
                    numbers.append(number)
        # The file has room for skipped images as well; the rows at its end stay empty.
        return DecodedLabelledImages(pixels[: len(numbers)], np.array(labels, np.int64), numbers)

    def _decode_image_or_record_skip(self, number: int) -> Pixels | None:
        self._done += 1
        self._progress(self._done)
        base = self._base
        try:
            content = self._photos.read_image_bytes(number)
            return decode_image_to_square_pixels(
                content, base.size, CHANNELS, self._max_pixels, base.resizing
            )
        except ImageInvalid as error:
            reason = error.detail
        except PackError as error:
            reason = str(error)
        self._skipped.append((self._photos.rows[number].name, reason))
        return None


def _require_readable_images_of_each_class(
    classes: list[str], learned: DecodedLabelledImages, held_out: DecodedLabelledImages
) -> None:
    for part, purpose in ((learned, "to learn from"), (held_out, "to be measured on")):
        counts = Counter(part.labels.tolist())
        empty = [name for label, name in enumerate(classes) if not counts[label]]
        if empty:
            raise ComparisonImpossible(
                f"Of {', '.join(empty[:5])} no image {purpose} can be read. Each class needs one "
                "at least. Replace the damaged files, or move the folders of these classes away."
            )
