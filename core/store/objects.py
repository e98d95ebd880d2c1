"""What a store is: objects by key, written whole or not at all.

Two stores have this shape, a folder and S3. Keys are made by the service, never by a client; they are
checked against an allow-list all the same, since a key becomes a path. An outage is `Unavailable` after
bounded retries, a missing or damaged object is `StoreCorrupt`.
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
"""A writer that has not finished after so long has crashed."""
_KEY = re.compile(r"[a-z0-9][a-zA-Z0-9._/-]*")


@dataclass(frozen=True)
class ObjectInfo:
    """One stored object: its key, its size in bytes, and when it was written (seconds since 1970).

    `tag` is another one once somebody has written to the object, even if he put the time back. `content` is a tag of
    the bytes alone, which S3 also tells of an object that it has just taken; "" where `tag` is known then.
    """

    key: str
    size: int
    modified: float
    tag: str = ""
    content: str = ""


def file_tag(status: os.stat_result) -> str:
    """The tag of a file: whoever writes to it cannot put `st_ctime` back."""
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"


class Store(Protocol):
    """Objects by key. Every method raises `Unavailable` when the store does not answer."""

    def put_file(self, key: str, path: Path, *, move: bool = False) -> str:
        """Store a file under `key`, replacing what was there; readers see the old or the new whole.

        With `move` the source is gone afterwards (a folder store on the same file system renames it).

        Returns:
            `tag` or `content` of the object, as `stat` tells them; "" where neither is known.
        """
        ...

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store `data` under `key`, as `put_file` does."""
        ...

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return chunks of at most 1 MiB from `offset` on, at most `length` bytes (None: to the end).

        A range beyond the end is clipped. Raises `StoreCorrupt` at once when there is no such object,
        and during iteration when it turns out shorter than it was.
        """
        ...

    def stat(self, key: str) -> ObjectInfo | None:
        """Describe the object, or return None when there is none."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; one that is not there is fine."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with `prefix` (empty: all), in no promised order."""
        ...

    def local_path(self, key: str) -> Path | None:
        """Return the object's own file in a folder store, None in any other or when missing."""
        ...

    def presign(self, key: str, seconds: int, headers: Mapping[str, str]) -> str | None:
        """Return a URL that lets anybody GET the object for `seconds` (1 to 900), or None for a folder.

        `headers` are response headers that the URL fixes, such as `Content-Disposition`.
        """
        ...

    def check(self) -> None:
        """Raise `Unavailable` when the store cannot be used now; answers within seconds."""
        ...

    def prepare(self) -> None:
        """Make the folder or the bucket when missing."""
        ...

    def remove_strays(self, older_s: float = STRAY_AFTER_S) -> None:
        """Remove what writers that began more than `older_s` seconds ago, and crashed, left half-written."""
        ...


def checked_key(key: str) -> str:
    """Return `key`; raise ValueError unless it is made of plain path segments."""
    if len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        raise ValueError(f"not a store key: {key[:80]!r}")
    if any(not part or part.startswith(".") for part in key.split("/")):
        raise ValueError(f"not a store key: {key[:80]!r}")
    return key


def checked_prefix(prefix: str) -> str:
    """Return `prefix`; raise ValueError unless keys can start with it (a trailing slash is fine)."""
    if prefix:
        checked_key(prefix.removesuffix("/"))
    return prefix


def checked_range(offset: int, length: int | None) -> None:
    """Raise ValueError for a negative offset or length."""
    if offset < 0 or (length is not None and length < 0):
        raise ValueError(f"not a range: offset {offset}, length {length}")
