"""Stage 5 of an upload: the spool file it is written to; counted, hashed, its type checked
early.
"""

import hashlib
import mmap
import os
from pathlib import Path

from api.uploads.request_checks import Look
from core.errors import BodyTooLarge
from core.files import disk, spool
from core.ingest.sniff import SNIFF_BYTES


class SpoolFile:
    """A temporary file that receives an upload; its methods run in threads, one after the other.

    Args:
        limit: maximum size in bytes.
        media_type: declared media type; for a file in a form, set before its first byte.
        look: called once, as soon as there are enough bytes; its result is `kind`.
    """

    def __init__(self, path: Path, limit: int, media_type: str | None, look: Look | None) -> None:
        # Locked while it is written, so that another API process does not remove it as abandoned.
        self._fd: int | None = spool.create_and_lock_file(path)
        self.path = path
        self._limit = limit
        self._hash = hashlib.sha256()
        self._first = b""
        self._look = look
        self.media_type = media_type
        self.kind = ""
        self.size = 0

    def write(self, data: bytes | mmap.mmap, length: int) -> None:
        """Append the first `length` bytes of `data` to the spool file."""
        self.append_piece(memoryview(data)[:length])

    def append_piece(self, data: memoryview) -> None:
        """Append received bytes to the spool file.

        Raises:
            BodyTooLarge: the file would exceed its limit.
            PerennialError: writing failed, or `look` refused the file.
        """
        assert self._fd is not None
        self.size += len(data)
        if self.size > self._limit:
            raise BodyTooLarge(f"The file may have {self._limit} bytes.")
        if self._look is not None:
            self._first += bytes(data[: SNIFF_BYTES - len(self._first)])
            if len(self._first) >= SNIFF_BYTES:
                self._detect_kind_from_first_bytes()
        self._hash.update(data)
        try:
            # The system may write less than it is given.
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise disk.convert_os_error_to_disk_error("Writing the upload", error) from error

    def _detect_kind_from_first_bytes(self) -> None:
        look, self._look = self._look, None
        if look is not None:
            self.kind = look(self._first, self.media_type)

    def finish(self) -> None:
        """Check the type of a spooled file that was too short to be checked before."""
        self._detect_kind_from_first_bytes()

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes written to the spool file so far, in hex."""
        return self._hash.hexdigest()

    @property
    def body_sha256(self) -> str:
        """SHA-256 of the whole request body, in hex."""
        return self.sha256

    def close(self) -> None:
        """Close the spool file; a second call does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
