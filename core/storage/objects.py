"""The interface of stores: objects by key, each written whole or not at all.

There are two implementations, a folder and S3. The service makes the keys, never a client. They are
still checked against an allow-list, since a key becomes a path. An outage raises `Unavailable`
after a bounded number of retries, a missing or damaged object raises `StoredObjectDamaged`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

CHUNK_BYTES = 1 << 20
MAX_KEY_LENGTH = 512
STRAY_AFTER_S = 86_400.0
"""Seconds after which a writer that has not finished is taken to have crashed."""
_KEY = re.compile(r"[a-z0-9][a-zA-Z0-9._/-]*")


@dataclass(frozen=True)
class ObjectInfo:
    """Description of one stored object: key, size, time and ETag.

    Attributes:
        key: the object's key.
        size: bytes.
        modified: time of the last write in seconds since 1970.
        tag: changes whenever the object is written to, even if its modification time is put back.
        content: tag of the bytes alone, which S3 also returns for an object that it has just
            stored; "" for stores that know `tag` at that time.
    """

    key: str
    size: int
    modified: float
    tag: str = ""
    content: str = ""


def make_file_change_tag(status: os.stat_result) -> str:
    """Return a tag that changes whenever a file does. It includes `st_ctime`, which a writer cannot
    set back.
    """
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"


class ObjectStorage(Protocol):
    """Interface of object stores. Every method raises `Unavailable` if the store does not respond."""

    def put_file(self, key: str, path: Path, *, move: bool = False) -> str:
        """Store a file as the object `key` and replace any previous object.

        Readers see the old or the new one whole.

        Args:
            move: remove the source afterwards; a folder store on the same file system renames it.

        Returns:
            `tag` or `content` of the object, equal to those of `stat`; "" if neither is known.
        """
        ...

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store bytes as the object `key`, like `put_file`."""
        ...

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return chunks of an object of at most 1 MiB from `offset` on, `length` bytes (None: to
        the end).

        A range beyond the end is clipped.

        Raises:
            StoredObjectDamaged: at once if the object does not exist; during iteration if it became
                shorter.
        """
        ...

    def stat(self, key: str) -> ObjectInfo | None:
        """Return size, time and ETag of a stored object; None if there is no such object."""
        ...

    def delete(self, key: str) -> None:
        """Delete a stored object, if present."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the stored objects whose key starts with `prefix` (empty: all), in no particular
        order.
        """
        ...

    def get_local_path(self, key: str) -> Path | None:
        """Return a stored object's file in a folder store; None if missing or in another store."""
        ...

    def make_download_url(self, key: str, seconds: int, headers: Mapping[str, str]) -> str | None:
        """Return a URL by which an object can be downloaded for `seconds` (1 to 900) without a key;
        None for a folder.

        Args:
            headers: response headers that the URL sets, such as `Content-Disposition`.
        """
        ...

    def check_store_usable(self) -> None:
        """Raise `Unavailable` within seconds if the object store cannot be used now."""
        ...

    def create_folder_or_bucket(self) -> None:
        """Create the store's folder or bucket if it is missing."""
        ...

    def remove_incomplete_objects(self, older_s: float = STRAY_AFTER_S) -> None:
        """Remove incomplete objects of crashed writers older than `older_s` seconds."""
        ...


def check_object_key(key: str) -> str:
    """Return an object's `key` unchanged; raise ValueError unless it is made of plain path
    segments.
    """
    if len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        raise ValueError(f"not a store key: {key[:80]!r}")
    # No key may lead out of the folder, or to the files that are being written.
    if any(not part or part.startswith(".") for part in key.split("/")):
        raise ValueError(f"not a store key: {key[:80]!r}")
    return key


def check_key_prefix(prefix: str) -> str:
    """Return a key `prefix` unchanged; raise ValueError unless object keys can start with it.

    A trailing slash is fine.
    """
    if prefix:
        check_object_key(prefix.removesuffix("/"))
    return prefix


def require_nonnegative_range(offset: int, length: int | None) -> None:
    """Raise ValueError for a negative offset or length of a range of bytes."""
    if offset < 0 or (length is not None and length < 0):
        raise ValueError(f"not a range: offset {offset}, length {length}")
