"""Labelled images of any source, whose bytes are read when they are sent.

A kind of source fills the rows from names alone if possible. `collect_image_byte_sizes` may have to read
files, `iterate_image_contents` always does.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class BatchImageEntry(NamedTuple):
    """Name, label and part (train or test) of an image in the packed batch.

    Attributes:
        name: its path in the archive.
        label: its class.
        part: `train` (learned), `test` (held out), or empty: the service holds out a share.
    """

    name: str
    label: str
    part: str


class ImageSource(ABC):
    """Base class of sources of labelled images in a fixed order.

    Attributes:
        rows: the images, in the order of `collect_image_byte_sizes` and `iterate_image_contents`.
        listed: True if labels are sent as a labels.csv; otherwise names contain them, as
            `<class>/…`.
        origin: description of the source, as the end of a sentence: `the folder “photos”`.
        warnings: sentences for a person, such as about files left out.
    """

    listed = True

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.rows: list[BatchImageEntry] = []
        self.warnings: list[str] = []

    def identity(self) -> str:
        """Return a text that changes when any image changes, if known without reading them; else
        "".
        """
        return ""

    @abstractmethod
    def collect_image_byte_sizes(self) -> "array[int]":
        """Return the size of every image in bytes; images without a known size are read. Called
        once.

        Unusable images that must be read are detected here: they are then removed from `rows`, and
        listed in `warnings`. Raises PackError.
        """

    @abstractmethod
    def iterate_image_contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Yield the bytes of each image from number `first` on, in pieces.

        Raises PackError.
        """
