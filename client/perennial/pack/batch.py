"""Batches that can be sent to the service, independent of their source."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

_CHUNK = 256 << 10


class PackedBatch(ABC):
    """Base class of a batch packed as bytes, which can be read again from any position."""

    @property
    def warnings(self) -> list[str]:
        """Warnings about the batch for a person, such as files that were left out."""
        return []

    def identity(self) -> str:
        """Return a text that identifies the batch's bytes also in a later run. Raises as
        `read_chunks`.
        """
        return f"{self.size}:{self.sha256()}"

    @property
    @abstractmethod
    def size(self) -> int:
        """Size of the packed batch in bytes. Images are read only if their sizes are recorded
        nowhere.

        Raises:
            PackError: a file cannot be read, or too many entries are bad.
        """

    @abstractmethod
    def describe(self) -> str:
        """Describe the batch in a sentence: number of images, classes, parts and origin."""

    def read_chunks(self, start: int = 0) -> Iterator[bytes]:
        """Yield the batch's bytes from `start` on, in chunks of 256 KiB or more; the same at every
        call.

        Raises:
            ValueError: `start` is negative or beyond the end.
            SourceChanged: a file has changed.
            PackError: a file cannot be read.
        """
        if not 0 <= start <= self.size:
            raise ValueError(
                f"The batch has {self.size} bytes; it cannot be read from byte {start}."
            )
        return _regroup_bytes_into_chunks(self._iterate_packed_bytes_from(start))

    def sha256(self) -> str:
        """Return the SHA-256 of the batch's bytes in hex; reads everything once. Raises as
        `read_chunks`.
        """
        return self._sha256

    @abstractmethod
    def _iterate_packed_bytes_from(self, start: int) -> Iterator[bytes]:
        """Yield the batch's bytes from `start` on, in pieces of any length."""

    # Cached, because it reads the whole source, and identity and Content-Digest both need it.
    @cached_property
    def _sha256(self) -> str:
        digest = hashlib.sha256()
        for chunk in self.read_chunks():
            digest.update(chunk)
        return digest.hexdigest()


def _regroup_bytes_into_chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    # Joined, because a request body of many small chunks is sent slowly.
    waiting, length = [], 0
    for piece in pieces:
        waiting.append(piece)
        length += len(piece)
        if length >= _CHUNK:
            yield b"".join(waiting)
            waiting, length = [], 0
    if length:
        yield b"".join(waiting)
