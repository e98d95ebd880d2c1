"""Images of a batch looked at before it is accepted: what cannot be read by its kind or size is said at once.

Nothing is decoded: `core.ingest.image_file.headers` reads first bytes and tags. Of a large batch images are taken
evenly from first to last; of one that is packed as a whole, such as a tar.gz, those at its beginning.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.errors import ArchiveInvalid
from core.ingest.image_file import headers
from core.ingest.image_file.unreadable import Unreadable
from core.ingest.layout import IGNORED
from core.ingest.limits import BAD_SHARE, REPORT_FILES, Limits
from core.ingest.members import Damaged, SizeMismatch
from core.ingest.names import show
from core.ingest.reader import Contents
from core.protocol.report import FileReason

MOST_IMAGES = 512
MOST_S = 2.0
MOST_BYTES = 256 << 20
"""Unpacked, of all that are looked at."""
FILE_BYTES = 16 << 20
"""Of a larger file only the beginning is read."""
_HEAD_BYTES = 64 << 10
_CERTAIN = 4
"""A share of unreadable images so many times the allowed one in a sample is no accident of the sample."""
_FEWEST = 64
Fetch = Callable[[int, int], bytes]
"""The first bytes of a member: its number, and how many at most."""


class Seen(NamedTuple):
    """An image that is looked at: its name, its first bytes, and whether these are all of it."""

    name: str
    data: bytes
    is_whole: bool


@dataclass(frozen=True)
class FirstLook:
    """images: of the batch; looked: those that were looked at; unreadable: of these, and the first of them."""

    images: int
    looked: int
    unreadable: int
    first: tuple[FileReason, ...]

    @property
    def is_sample(self) -> bool:
        """True where some were not looked at."""
        return self.looked < self.images

    def warnings(self) -> list[str]:
        """Return what a person should know about images that will be left out."""
        if not self.unreadable:
            return []
        those = f"{self.unreadable} of {self.looked} images" + (" looked at" if self.is_sample else "")
        verb = (
            "cannot be read and will be left out" if self.unreadable > 1 else "cannot be read and is left out"
        )
        return [f"{those} {verb}; the first is {show(self.first[0]['path'])}: {self.first[0]['reason']}."]

    def require_enough(self, max_bad: float = BAD_SHARE) -> None:
        """Raise ArchiveInvalid where so many are unreadable that the batch would be rejected.

        max_bad: share of images that may be damaged.
        """
        is_beyond = self.unreadable > max_bad * self.images or (
            self.looked >= _FEWEST and self.unreadable > _CERTAIN * max_bad * self.looked
        )
        if is_beyond:
            of = f"{self.looked} images looked at" if self.is_sample else f"{self.images} images"
            share = math.ceil(100 * self.unreadable / self.looked) / 100
            remedy = (
                f" To learn the others, send the batch with ?max_bad={share:g}."
                if self.unreadable < self.looked
                else ""
            )
            raise ArchiveInvalid(
                f"{self.unreadable} of {of} cannot be read, more than {100 * max_bad:.3g}%; the first is "
                f"{show(self.first[0]['path'])}: {self.first[0]['reason']}.{remedy}"
            )


NOTHING = FirstLook(0, 0, 0, ())
"""Of a batch without image files."""


def look_at(contents: Contents, fetch: Fetch, limits: Limits, *, in_order: bool) -> FirstLook:
    """Look at images of a batch. in_order: `fetch` goes from front to back alone."""
    of = np.array(contents.layout.of, np.int64)
    rows = np.flatnonzero(of != IGNORED)
    if contents.arrays or not rows.size:
        return NOTHING
    members = contents.members
    return seen_of(
        len(rows),
        (
            Seen(members.names[number], data, is_whole=len(data) == members.sizes[number])
            for number, data in _fetched(contents, rows, fetch, in_order=in_order)
        ),
        limits,
    )


def seen_of(images: int, seen: Iterable[Seen], limits: Limits) -> FirstLook:
    """Return what some of a batch's images show. images: how many it has."""
    looked = unreadable = 0
    first: list[FileReason] = []
    for one in seen:
        looked += 1
        try:
            headers.check(one.data, limits.image_pixels, is_whole=one.is_whole)
        except Unreadable as error:
            unreadable += 1
            if len(first) < REPORT_FILES:
                first.append({"path": one.name, "reason": str(error)})
    return FirstLook(images, looked, unreadable, tuple(first))


def _fetched(
    contents: Contents, rows: npt.NDArray[np.int64], fetch: Fetch, *, in_order: bool
) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of the images to look at, while there is time. A damaged one is the job's to report."""
    end, left = time.monotonic() + MOST_S, MOST_BYTES
    step = 1.0 if in_order else max(1.0, len(rows) / MOST_IMAGES)
    for i in range(min(len(rows), MOST_IMAGES)):
        number = int(rows[int(i * step)])
        size = contents.members.sizes[number]
        most = FILE_BYTES if size <= FILE_BYTES and not in_order else _HEAD_BYTES
        left -= min(size, most)
        if left < 0 or time.monotonic() > end:
            return
        try:
            data = fetch(number, most)
        except (Damaged, SizeMismatch):
            continue
        yield number, data
