"""What every kind of source becomes: labelled images, whose bytes are read when they are sent.

A kind fills the rows by names alone where it can; `sizes` may have to read, `contents` always does.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Image(NamedTuple):
    """An image as the service will know it.

    name: its path in the archive; label: its class; part: `train` (learned), `test` (held out), or empty: the service
    holds out a share.
    """

    name: str
    label: str
    part: str


class Images(ABC):
    """A source of images in a fixed order.

    Attributes:
        rows: the images, in the order of `sizes` and `contents`.
        listed: whether labels go along as a labels.csv; else the names say them, as `<class>/…`.
        origin: what they come from, as the end of a sentence: `the folder “photos”`.
        warnings: sentences for a person, such as about files that were left out.
    """

    listed = True

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.rows: list[Image] = []
        self.warnings: list[str] = []

    def identity(self) -> str:
        """Return a text that changes with the bytes, where that is known without reading them; else empty."""
        return ""

    @abstractmethod
    def sizes(self) -> "array[int]":
        """Bytes of every image. Called once.

        Images that cannot be used are found here where they have to be read: `rows` and `warnings` are afterwards
        without and with them. Raises PackError.
        """

    @abstractmethod
    def contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """The bytes of image `first` and of all after it, each in pieces that are read before the next is asked for.

        Raises PackError.
        """
