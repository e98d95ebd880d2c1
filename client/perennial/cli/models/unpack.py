"""Extraction of a download's zip within limits on names, number of files, and size."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perennial.errors import BadAnswer
from perennial.guard import require_safe_filename

MAX_ENTRIES = 1000
MAX_GROWTH = 20
"""Maximum compression ratio, applied from `FREE_BYTES` on: weights hardly compress."""
FREE_BYTES = 64 << 20
MAX_TEXT_BYTES = 64 << 20
"""Maximum bytes of a file that is read into memory."""
CHUNK_BYTES = 1 << 20


class DownloadedVersionZip:
    """An opened zip of a downloaded version, read with limits on its unpacked size.

    Attributes:
        names: safe names of its files.
    """

    def __init__(self, archive: zipfile.ZipFile, archive_bytes: int) -> None:
        self._archive = archive
        # One allowance for all files together, since many files can grow as much as one.
        self._left = max(FREE_BYTES, MAX_GROWTH * archive_bytes)
        entries = archive.namelist()
        if len(entries) > MAX_ENTRIES:
            raise BadAnswer(
                f"The download holds {len(entries):,} files; {MAX_ENTRIES:,} are taken."
            )
        # Checked before the first file is written, so that a hostile archive leaves none.
        self.names = sorted({require_safe_filename(name) for name in entries})

    def unpack_file(self, name: str, folder: Path) -> None:
        """Extract one file of the download into a folder. Raises BadAnswer if it unpacks to too
        much.
        """
        with (folder / name).open("wb") as file:
            for chunk in self._read_unpacked_chunks(name):
                file.write(chunk)

    def read_small_file(self, name: str) -> bytes:
        """Return the content of a small file in the download. Raises BadAnswer if it is too large."""
        content = bytearray()
        for chunk in self._read_unpacked_chunks(name):
            content += chunk
            if len(content) > MAX_TEXT_BYTES:
                raise BadAnswer(f"{name} of the download has more than {MAX_TEXT_BYTES:,} bytes.")
        return bytes(content)

    def _read_unpacked_chunks(self, name: str) -> Iterator[bytes]:
        with self._archive.open(name) as file:
            while chunk := file.read(CHUNK_BYTES):
                # Counted while reading, because the sizes in a zip's directory may be false.
                self._left -= len(chunk)
                if self._left < 0:
                    raise BadAnswer(
                        "The download unpacks to far more than its size; the rest was not written."
                    )
                yield chunk


@contextmanager
def open_downloaded_version_zip(file: Path) -> Iterator[DownloadedVersionZip]:
    """Open the zip of a downloaded version. Raises BadAnswer if it is not one.

    Raises:
        BadAnswer: it is not a zip of plain files, or is damaged.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            yield DownloadedVersionZip(archive, file.stat().st_size)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        # zipfile raises RuntimeError for encrypted files, NotImplementedError for unknown methods.
        RuntimeError,
        NotImplementedError,
        ValueError,
    ) as error:
        raise BadAnswer(f"The download is no archive that can be read: {error}.") from error
