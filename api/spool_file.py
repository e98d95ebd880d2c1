"""The file in the spool that an upload is written to: counted, hashed, and looked at early."""

import hashlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path

from core import disk, spool
from core.errors import BodyTooLarge
from core.ingest.sniff import SNIFF_BYTES

Early = Callable[[bytes, str | None], None]


class SpoolFile:
    """The spool file; its methods run in threads, one after the other."""

    def __init__(self, path: Path, limit: int, media_type: str | None, early: Early | None) -> None:
        self._fd: int | None = spool.create(path)
        self._limit = limit
        self._hash = hashlib.sha256()
        self._first = b""
        self._early = early
        self.media_type = media_type
        self.size = 0

    def write(self, data: bytes | mmap.mmap, length: int) -> None:
        """Append the first `length` bytes of `data`."""
        self.append(memoryview(data)[:length])

    def append(self, data: memoryview) -> None:
        """Append a piece."""
        assert self._fd is not None
        self.size += len(data)
        if self.size > self._limit:
            raise BodyTooLarge(f"The file may have {self._limit} bytes.")
        if self._early is not None:
            self._first += bytes(data[: SNIFF_BYTES - len(self._first)])
            if len(self._first) >= SNIFF_BYTES:
                self._look()
        self._hash.update(data)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise disk.failed("Writing the upload", error) from error

    def _look(self) -> None:
        early, self._early = self._early, None
        if early is not None:
            early(self._first, self.media_type)

    def finish(self) -> None:
        """All has come."""
        self._look()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    @property
    def body_sha256(self) -> str:
        return self.sha256

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
