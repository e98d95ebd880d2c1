"""Common parts of up- and downloads: sources of bytes, digests, and the record of an open
upload.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from perennial._formats import FORMATS
from perennial.errors import ConfigError, UndecidedBatch

CHUNK_BYTES = 8 << 20
"""Bytes per piece of a resumable upload."""
WHOLE_BYTES = 64 << 20
"""Size in bytes below which a batch is sent in one request."""
PIECE_BYTES = 256 << 10
"""Bytes read and sent at once."""
MAX_DOWNLOAD_BYTES = 16 << 30
"""Default maximum size of a download in bytes."""

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total bytes."""


class TransferSource(Protocol):
    """Protocol of bytes to upload, which can be read repeatedly from any position."""

    @property
    def size(self) -> int:
        """Number of bytes to upload."""

    def read_chunks(self, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes to upload from `start` on."""

    def sha256(self) -> str:
        """Return the SHA-256 of the bytes to upload, in hex."""


@dataclass(frozen=True)
class BytesSource:
    """Upload of bytes in memory. `reading`: options for how the service reads them."""

    content: bytes
    reading: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.content)

    def read_chunks(self, start: int = 0) -> Iterator[bytes]:
        for at in range(start, len(self.content), PIECE_BYTES):
            yield self.content[at : at + PIECE_BYTES]

    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def identity(self) -> str:
        """Return a text that identifies the bytes in a later run."""
        return self.sha256()


@dataclass(frozen=True)
class FileSource:
    """Upload of a file on disk. `reading`: options for how the service reads it."""

    path: Path
    size: int
    reading: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_path(cls, path: Path, reading: Mapping[str, str] | None = None) -> Self:
        return cls(path, path.stat().st_size, reading or {})

    def read_chunks(self, start: int = 0) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(start)
            while chunk := file.read(PIECE_BYTES):
                yield chunk

    def sha256(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def identity(self) -> str:
        """Identify the file by inode, size and modification time, without reading it."""
        status = self.path.stat()
        return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


@dataclass(frozen=True)
class PackedSource:
    """Upload of a folder or data set that `perennial.pack` packs."""

    batch: TransferSource

    @property
    def size(self) -> int:
        with _translate_pack_errors():
            return self.batch.size

    def read_chunks(self, start: int = 0) -> Iterator[bytes]:
        with _translate_pack_errors():
            yield from self.batch.read_chunks(start)

    def sha256(self) -> str:
        with _translate_pack_errors():
            return self.batch.sha256()

    def identity(self) -> str:
        """Return a text that identifies the packed batch in a later run."""
        # A batch of the caller's own needs no more than `TransferSource` asks for.
        batch_identity = getattr(self.batch, "identity", None)
        with _translate_pack_errors():
            return (
                str(batch_identity())
                if batch_identity is not None
                else f"{self.batch.size}:{self.batch.sha256()}"
            )

    def describe(self) -> str:
        """Describe the packed batch in a sentence: number of images, classes and origin."""
        with _translate_pack_errors():
            return str(self.batch.describe()) if hasattr(self.batch, "describe") else ""

    @property
    def warnings(self) -> list[str]:
        """Warnings about the packed batch for a person, such as files left out."""
        return list(getattr(self.batch, "warnings", ()))


@contextlib.contextmanager
def _translate_pack_errors() -> Iterator[None]:
    try:
        yield
    # The message is a sentence for a person: a file has changed, or cannot be read.
    except ValueError as error:
        raise ConfigError(str(error)) from error


BatchIn = str | os.PathLike[str] | bytes | Mapping[str, Any] | TransferSource
"""An archive, its bytes, a folder or data set, `s3://…`, images by class, or an opened batch."""


def open_batch_as_transfer_source(batch: BatchIn, **options: Any) -> TransferSource:
    """Turn a batch of any supported kind into bytes to upload; folders and data sets become a tar.

    Args:
        options: options of the adapter that reads a folder or data set (`perennial.pack`), or for
            the service to read an archive: `layout="folders"`, `one_class=True`,
            `classes="level:1"`.

    Raises:
        UndecidedBatch: a folder can be read in several ways.
        ConfigError: there is no such file or folder, or it cannot be packed.
    """
    if isinstance(batch, bytes):
        return BytesSource(batch, _encode_reading_options(options))
    if isinstance(batch, Mapping):
        return _open_as_packed_source(batch, options)
    # Imported here, because bytes are sent without `perennial.pack`, which takes a moment.
    from perennial.pack.remote.address import is_remote_address

    if not isinstance(batch, (str, os.PathLike)):
        return (
            batch
            if isinstance(batch, (BytesSource, FileSource, PackedSource))
            else PackedSource(batch)
        )
    if isinstance(batch, str) and is_remote_address(batch):
        return _open_as_packed_source(batch, options)
    path = Path(batch)
    if not path.exists():
        raise ConfigError(f"There is no file or folder {path}.")
    is_archive = path.is_file() and FORMATS.has_archive_ending(path.name)
    if is_archive and _has_known_reading_options_only(options) and not _is_webdataset_shard(path):
        return FileSource.from_path(path, _encode_reading_options(options))
    return _open_as_packed_source(path, options)


def _is_webdataset_shard(path: Path) -> bool:
    """Return True for a tar of WebDataset samples, which the service cannot read as an archive."""
    if not path.name.lower().endswith(".tar"):
        return False
    from perennial.pack.sources.webdataset import looks_like_webdataset_shard

    return looks_like_webdataset_shard(str(path))


def _has_known_reading_options_only(options: Mapping[str, Any]) -> bool:
    if not options:
        return True
    from perennial.reading_rules.options import OPTIONS

    return not set(options) - {*OPTIONS, "known_classes"}


def _encode_reading_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Encode options for reading a batch as query parameters. Raises ConfigError."""
    if not options:
        return {}
    from perennial.reading_rules.options import (
        OPTIONS,
        convert_reading_option_values_to_texts,
        parse_reading_option_texts,
        serialise_reading_options_to_texts,
    )

    unknown = sorted(set(options) - {*OPTIONS, "known_classes"})
    if unknown:
        raise ConfigError(
            f"An archive has no option {', '.join(unknown)}; it has {', '.join(OPTIONS)}."
        )
    try:
        return serialise_reading_options_to_texts(
            parse_reading_option_texts(convert_reading_option_values_to_texts(options))
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _open_as_packed_source(source: Any, options: Mapping[str, Any]) -> TransferSource:
    from perennial.pack import Undecided, open_batch

    try:
        return PackedSource(open_batch(source, **options))
    except Undecided as error:
        raise UndecidedBatch(str(error)) from error
    except (TypeError, ValueError) as error:  # an unknown option, or a folder of unknown kind
        raise ConfigError(str(error)) from error


def compute_source_fingerprint(source: TransferSource) -> str:
    """Return a text that identifies a source's bytes also in a later run, to resume its upload."""
    source_identity = getattr(source, "identity", None)
    return (
        str(source_identity())
        if source_identity is not None
        else f"{source.size}:{source.sha256()}"
    )


def format_content_digest(sha256: str) -> str:
    """Format a SHA-256 in hex as the header Content-Digest (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"


def compute_tus_checksum_header(chunk: bytes) -> str:
    """Compute the header Upload-Checksum of one upload piece."""
    return f"sha256 {base64.b64encode(hashlib.sha256(chunk).digest()).decode()}"


def parse_etag_digest(etag: str | None) -> str | None:
    """Parse the SHA-256 in an ETag into hex; None if it has none."""
    # A proxy that compresses weakens the ETag; the digest in it is still that of the whole file.
    text = (etag or "").removeprefix("W/").strip('"')
    try:
        return text.lower() if len(bytes.fromhex(text)) == 32 else None
    except (ValueError, binascii.Error):
        return None


class UploadLocationCache:
    """Remembers the location of an unfinished upload in the user's cache folder, to resume it
    later.

    Args:
        url, model: URL of the service, and the model that the batch is for.
        batch: `compute_source_fingerprint` of the source.
    """

    def __init__(self, url: str, model: str, batch: str) -> None:
        import platformdirs

        # Hashed, because URL, model and path may hold anything, and a file name may not.
        name = hashlib.sha256(json.dumps([url, model, batch]).encode()).hexdigest()
        self._file = (
            platformdirs.user_cache_path("perennial", appauthor=False) / "uploads" / f"{name}.json"
        )

    def read_upload_location(self) -> str | None:
        """Read the location of an upload that an earlier run stored; None if there is none."""
        try:
            # The caller checks the location, since another program may have written the file.
            return str(json.loads(self._file.read_text())["location"])
        # A damaged record costs only the resumption: the upload begins again.
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def store_upload_location(self, location: str) -> None:
        """Store the location of an upload, so that a later run can resume it."""
        # Without this file, the upload still works, and only cannot be resumed by a later run.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file.write_text(json.dumps({"location": location}))

    def remove_upload_location(self) -> None:
        """Delete the stored location of an upload that is finished or gone."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)


@dataclass(frozen=True)
class Downloaded:
    """A downloaded file: path, size in bytes, and SHA-256 in hex.

    `is_verified`: True if the SHA-256 is the one that the service announced; False if it announced
    none.
    """

    path: Path
    bytes: int
    sha256: str
    is_verified: bool


def hash_file_content(path: Path) -> hashlib._Hash:
    """Read a file and return its SHA-256 hash object."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest
