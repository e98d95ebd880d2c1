"""Zip entries with the same bytes whenever they are written: stored, with a fixed time and mode."""

import zipfile
from collections.abc import Iterable

# The earliest time that a zip can hold.
_EPOCH = (1980, 1, 1, 0, 0, 0)
# zipfile's own limit for a header without zip64.
_ZIP64_BYTES = 1 << 31


def add_zip_entry(archive: zipfile.ZipFile, name: str, size: int, chunks: Iterable[bytes]) -> None:
    """Write an entry of `size` bytes to a zip archive."""
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3  # Unix, regardless of this system
    info.external_attr = 0o644 << 16
    info.file_size = size
    # Decided beforehand, because the local header is written before the data.
    with archive.open(info, "w", force_zip64=size >= _ZIP64_BYTES) as entry:
        for chunk in chunks:
            entry.write(chunk)


def add_text_to_zip(archive: zipfile.ZipFile, name: str, text: str) -> None:
    """Write a UTF-8 text file to a zip archive."""
    data = text.encode()
    add_zip_entry(archive, name, len(data), [data])
