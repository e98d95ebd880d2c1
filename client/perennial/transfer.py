"""What up- and downloads share: sources of bytes, digests, and what is remembered of an upload between two runs."""

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

from perennial.errors import ConfigError, UndecidedBatch

CHUNK_BYTES = 8 << 20
"""Of an upload that can be resumed."""
WHOLE_BYTES = 64 << 20
"""A batch below it goes in one request."""
PIECE_BYTES = 256 << 10
"""Read and sent at once."""
MAX_DOWNLOAD_BYTES = 16 << 30
"""Of a file that is fetched, where the caller allows no other size."""
ARCHIVE_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".npz")

Progress = Callable[[int, int], None]
"""Called with the bytes that are done and those there are in all."""


class Source(Protocol):
    """Bytes that can be read again and again from the start, always the same."""

    @property
    def size(self) -> int:
        """How many."""

    def read_chunks(self, start: int = 0) -> Iterator[bytes]:
        """From the byte `start` to the last."""

    def sha256(self) -> str:
        """Their digest in hex."""


@dataclass(frozen=True)
class BytesSource:
    """Bytes in memory. `reading`: options by which the service reads them."""

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
        """What says that these are the same bytes."""
        return self.sha256()


@dataclass(frozen=True)
class FileSource:
    """An archive on disk. `reading`: options by which the service reads it."""

    path: Path
    size: int
    reading: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, reading: Mapping[str, str] | None = None) -> Self:
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
        """File, size and time of change: bytes need not be read to know that they are the same."""
        found = self.path.stat()
        return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


@dataclass(frozen=True)
class PackedSource:
    """A folder or data set that `perennial.pack` reads; what it finds wrong is an error of this client."""

    batch: Source

    @property
    def size(self) -> int:
        with _said():
            return self.batch.size

    def read_chunks(self, start: int = 0) -> Iterator[bytes]:
        with _said():
            yield from self.batch.read_chunks(start)

    def sha256(self) -> str:
        with _said():
            return self.batch.sha256()

    def identity(self) -> str:
        """What says that these are the same bytes."""
        own = getattr(self.batch, "identity", None)
        with _said():
            return str(own()) if own is not None else f"{self.batch.size}:{self.batch.sha256()}"

    def describe(self) -> str:
        """One sentence: how many images of which classes, and what they come from."""
        with _said():
            return str(self.batch.describe()) if hasattr(self.batch, "describe") else ""

    @property
    def warnings(self) -> list[str]:
        """Sentences for a person: what was left out, what to look at."""
        return list(getattr(self.batch, "warnings", ()))


@contextlib.contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except ValueError as error:  # a sentence for a person: a file changed, or cannot be read
        raise ConfigError(str(error)) from error


BatchIn = str | os.PathLike[str] | bytes | Mapping[str, Any] | Source
"""An archive, its bytes, a folder or data set, `s3://…`, images by class, or what `pack.open_batch` has opened."""


def source_of(batch: BatchIn, **options: Any) -> Source:
    """What is to be sent: bytes and archives as they are, anything else (a folder …) as a tar that is made on the way.

    Args:
        options: of the adapter that reads a folder or data set (`perennial.pack`), or by which the service reads an
            archive: `layout="folders"`, `one_class=True`, `classes="level:1"`.

    Raises:
        UndecidedBatch: a folder can be read in several ways.
        ConfigError: there is no such file or folder, or it cannot be packed.
    """
    if isinstance(batch, bytes):
        return BytesSource(batch, _reading(options))
    if isinstance(batch, Mapping):
        return _packed(batch, options)
    from perennial.pack.remote.address import is_address

    if not isinstance(batch, (str, os.PathLike)):
        return batch if isinstance(batch, (BytesSource, FileSource, PackedSource)) else PackedSource(batch)
    if isinstance(batch, str) and is_address(batch):
        return _packed(batch, options)
    path = Path(batch)
    if not path.exists():
        raise ConfigError(f"There is no file or folder {path}.")
    is_archive = path.is_file() and path.name.lower().endswith(ARCHIVE_ENDINGS)
    if is_archive and _are_of_reading(options) and not _is_shard(path):
        return FileSource.of(path, _reading(options))
    return _packed(path, options)


def _is_shard(path: Path) -> bool:
    """A tar of WebDataset's samples is no archive that the service reads."""
    if not path.name.lower().endswith(".tar"):
        return False
    from perennial.pack.webdataset import looks_like_shard

    return looks_like_shard(str(path))


def _are_of_reading(options: Mapping[str, Any]) -> bool:
    if not options:
        return True
    from perennial.pack.rules.options import OPTIONS

    return not set(options) - {*OPTIONS, "known_classes"}


def _reading(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options of reading as they are sent. Raises ConfigError."""
    if not options:
        return {}
    from perennial.pack.rules.options import OPTIONS, option_texts, read_options, write_options

    unknown = sorted(set(options) - {*OPTIONS, "known_classes"})
    if unknown:
        raise ConfigError(f"An archive has no option {', '.join(unknown)}; it has {', '.join(OPTIONS)}.")
    try:
        return write_options(read_options(option_texts(options)))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _packed(source: Any, options: Mapping[str, Any]) -> Source:
    from perennial.pack import Undecided, open_batch

    try:
        return PackedSource(open_batch(source, **options))
    except Undecided as error:
        raise UndecidedBatch(str(error)) from error
    except (TypeError, ValueError) as error:  # an option that it has not; a folder of no known kind
        raise ConfigError(str(error)) from error


def identity(source: Source) -> str:
    """What says in a later run that the bytes are still the same."""
    own = getattr(source, "identity", None)
    return str(own()) if own is not None else f"{source.size}:{source.sha256()}"


def content_digest(sha256: str) -> str:
    """The value of Content-Digest (RFC 9530) for a sha256 in hex."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"


def tus_checksum(chunk: bytes) -> str:
    """The value of Upload-Checksum for one piece."""
    return f"sha256 {base64.b64encode(hashlib.sha256(chunk).digest()).decode()}"


def digest_in(etag: str | None) -> str | None:
    """The sha256 in hex that an ETag holds, if it does."""
    text = (etag or "").removeprefix("W/").strip('"')
    try:
        return text.lower() if len(bytes.fromhex(text)) == 32 else None
    except (ValueError, binascii.Error):
        return None


class UploadMemory:
    """Remembers the address of one upload in the user's cache folder until its batch is submitted.

    Args:
        url, model: of the service, and for which model.
        batch: `identity` of the source.
    """

    def __init__(self, url: str, model: str, batch: str) -> None:
        import platformdirs

        name = hashlib.sha256(json.dumps([url, model, batch]).encode()).hexdigest()
        self._file = platformdirs.user_cache_path("perennial", appauthor=False) / "uploads" / f"{name}.json"

    def load(self) -> str | None:
        """What an earlier run left: the upload's path at the service."""
        try:
            return str(json.loads(self._file.read_text())["location"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def save(self, location: str) -> None:
        """A folder that cannot be written costs no upload: it can only not be resumed by another run."""
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file.write_text(json.dumps({"location": location}))

    def forget(self) -> None:
        """The batch is submitted, or refused, or the upload is gone."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)


@dataclass(frozen=True)
class Downloaded:
    """A file that was downloaded: where it is, its bytes, and its sha256 in hex.

    `is_verified`: that is the digest that the service named; False: the service named none.
    """

    path: Path
    bytes: int
    sha256: str
    is_verified: bool


def hash_file(path: Path) -> hashlib._Hash:
    """The running sha256 of what a file has so far."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest
