"""First look at the images of a batch before it is accepted, to report unreadable ones at once.

Nothing is decoded: `core.ingest.image_file.headers` reads first bytes and tags. Of a large batch,
images are taken evenly from first to last; of one that is packed as a whole, such as a tar.gz, from
its beginning.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.contract.reports.report import FileReason
from core.errors import ArchiveInvalid
from core.ingest.image_file import headers
from core.ingest.image_file.unreadable import Unreadable
from core.ingest.layout import IGNORED
from core.ingest.limits import BAD_SHARE, REPORT_FILES, ArchiveLimits
from core.ingest.members import ArchiveFileUnpackedSizeMismatch, DamagedArchiveMember
from core.ingest.names import quote_name
from core.ingest.reader import ArchiveContents

MOST_IMAGES = 512
MOST_S = 2.0
MOST_BYTES = 256 << 20
"""Most unpacked bytes of all images that are looked at."""
FILE_BYTES = 16 << 20
"""Size in bytes above which only the beginning of a file is read."""
_HEAD_BYTES = 64 << 10
_CERTAIN = 4
"""Multiple of the allowed share of unreadable images above which a sample is not bad by chance."""
# A smaller sample may be bad by chance.
_FEWEST = 64
Fetch = Callable[[int, int], bytes]
"""Returns the first bytes of a member, given its number and the maximum number of bytes."""


class ImageFirstBytes(NamedTuple):
    """First bytes of an image file for a quick check: its name, the bytes, and whether they are
    all.
    """

    name: str
    data: bytes
    is_whole: bool


@dataclass(frozen=True)
class SampleImageCheckResult:
    """Result of checking the first bytes of some images, before a batch is decoded.

    Attributes:
        images: number of images in the batch.
        looked: number of images that were looked at.
        unreadable: number of these that cannot be read.
        first: the first unreadable ones, with reasons.
    """

    images: int
    looked: int
    unreadable: int
    first: tuple[FileReason, ...]

    @property
    def is_partly_checked(self) -> bool:
        """True if some images of the batch were not checked before decoding."""
        return self.looked < self.images

    def build_left_out_warnings(self) -> list[str]:
        """Return warnings about unreadable images that will be left out of the batch."""
        if not self.unreadable:
            return []
        unreadable_text = f"{self.unreadable} of {self.looked} images" + (
            " looked at" if self.is_partly_checked else ""
        )
        verb = (
            "cannot be read and will be left out"
            if self.unreadable > 1
            else "cannot be read and is left out"
        )
        return [
            f"{unreadable_text} {verb}; the first is {quote_name(self.first[0]['path'])}: "
            f"{self.first[0]['reason']}."
        ]

    def require_enough_readable_images(self, max_bad: float = BAD_SHARE) -> None:
        """Raise ArchiveInvalid if so many checked images are unreadable that the batch would be
        rejected.

        Args:
            max_bad: share of images that may be damaged.
        """
        is_beyond = self.unreadable > max_bad * self.images or (
            self.looked >= _FEWEST and self.unreadable > _CERTAIN * max_bad * self.looked
        )
        if is_beyond:
            total_text = (
                f"{self.looked} images looked at"
                if self.is_partly_checked
                else f"{self.images} images"
            )
            # Rounded up, or the share in the advice would be refused again.
            share = math.ceil(100 * self.unreadable / self.looked) / 100
            remedy = (
                f" To learn the others, send the batch with ?max_bad={share:g}."
                if self.unreadable < self.looked
                else ""
            )
            raise ArchiveInvalid(
                f"{self.unreadable} of {total_text} cannot be read, more than {100 * max_bad:.3g}%; the "
                f"first is {quote_name(self.first[0]['path'])}: {self.first[0]['reason']}.{remedy}"
            )


NOTHING = SampleImageCheckResult(0, 0, 0, ())
"""Result for a batch without image files."""


def check_first_bytes_of_sample_images(
    contents: ArchiveContents, fetch: Fetch, limits: ArchiveLimits, *, in_order: bool
) -> SampleImageCheckResult:
    """Check the first bytes of some images of a batch before it is decoded.

    Args:
        in_order: `fetch` can only read members from front to back.
    """
    class_numbers = np.array(contents.layout.of, np.int64)
    rows = np.flatnonzero(class_numbers != IGNORED)
    # Arrays hold pixels, which are readable in any case.
    if contents.arrays or not rows.size:
        return NOTHING
    members = contents.members
    return check_first_bytes_of_images(
        len(rows),
        (
            ImageFirstBytes(
                members.names[number], data, is_whole=len(data) == members.sizes[number]
            )
            for number, data in _read_sample_image_starts(contents, rows, fetch, in_order=in_order)
        ),
        limits,
    )


def check_first_bytes_of_images(
    images: int, heads: Iterable[ImageFirstBytes], limits: ArchiveLimits
) -> SampleImageCheckResult:
    """Check the first bytes of some images of a batch, and return how many are unreadable.

    Args:
        images: number of images in the batch.
    """
    looked = unreadable = 0
    first: list[FileReason] = []
    for head in heads:
        looked += 1
        try:
            headers.check(head.data, limits.image_pixels, is_whole=head.is_whole)
        except Unreadable as error:
            unreadable += 1
            if len(first) < REPORT_FILES:
                first.append({"path": head.name, "reason": str(error)})
    return SampleImageCheckResult(images, looked, unreadable, tuple(first))


def _read_sample_image_starts(
    contents: ArchiveContents, rows: npt.NDArray[np.int64], fetch: Fetch, *, in_order: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield number and first bytes of sample images while time remains; damaged ones are left out."""
    end, bytes_left = time.monotonic() + MOST_S, MOST_BYTES
    # In order, each image costs the unpacking of all before it.
    step = 1.0 if in_order else max(1.0, len(rows) / MOST_IMAGES)
    for i in range(min(len(rows), MOST_IMAGES)):
        number = int(rows[int(i * step)])
        size = contents.members.sizes[number]
        # A whole file shows more damage than its head, but must be unpacked.
        max_bytes = FILE_BYTES if size <= FILE_BYTES and not in_order else _HEAD_BYTES
        bytes_left -= min(size, max_bytes)
        if bytes_left < 0 or time.monotonic() > end:
            return
        try:
            data = fetch(number, max_bytes)
        except (DamagedArchiveMember, ArchiveFileUnpackedSizeMismatch):
            continue
        yield number, data
