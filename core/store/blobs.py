"""Content-addressed blobs: the key is the sha256 of the bytes, so a blob is written once and shared.

A blob under `blobs/ab/abcdef…` never changes; whoever reads it whole learns whether its bytes still have
that digest. A folder store is read in place; blobs of S3 are copied once into a local cache, whose files
are checked again when a process first uses them.
"""

import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from core import disk
from core.errors import StoreCorrupt, Unavailable
from core.store.objects import CHUNK_BYTES, STRAY_AFTER_S, Store
from core.store.verified_files import VerifiedFiles

_SHA256 = re.compile(r"[0-9a-f]{64}")
CACHE_BYTES = 20 << 30
KEEP_USED_S = 3600.0
"""A cached blob that was used so recently stays, whatever the cache's size: a job may be about to open it."""

_log = logging.getLogger(__name__)
# By whichever `Blobs` of this process.
_verified = VerifiedFiles()


class Blobs:
    """Blobs on a store. Safe for threads, and for processes that share one cache folder.

    Args:
        store: where the blobs live.
        cache: a local folder for copies of blobs of a store that has no local files.
        cache_bytes: the cache is trimmed to this size, oldest use first.
    """

    def __init__(self, store: Store, cache: Path, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._cache = cache
        self._cache_bytes = cache_bytes

    @staticmethod
    def key(sha256: str) -> str:
        """Return the store key of a digest (64 lower-case hexadecimal digits, else ValueError)."""
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"not a sha256: {sha256[:80]!r}")
        return f"blobs/{sha256[:2]}/{sha256}"

    def put_file(self, path: Path, *, move: bool = False) -> tuple[str, int]:
        """Store a file and return its (sha256, bytes); nothing is sent when it is there already.

        With `move` the file is gone afterwards.
        """
        sha256, size = _digest(path)
        key = self.key(sha256)
        info = self._store.stat(key)
        if info is None or info.size != size:
            self._store.put_file(key, path, move=move)
        if move:
            path.unlink(missing_ok=True)
        return sha256, size

    def has(self, sha256: str) -> bool:
        """Whether the blob is stored."""
        return self._store.stat(self.key(sha256)) is not None

    def size(self, sha256: str) -> int | None:
        """The blob's size in bytes, or None when it is not stored."""
        info = self._store.stat(self.key(sha256))
        return None if info is None else info.size

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return chunks of a blob; a whole read is verified, a range is not.

        Raises:
            StoreCorrupt: at once when the blob is missing. On a whole read also in place of the last
                chunk, when the digest does not match: a reader never gets a wrong blob to its end.
        """
        chunks = self._store.read(self.key(sha256), offset, length)
        return verified(chunks, sha256) if offset == 0 and length is None else chunks

    def fetch(self, sha256: str) -> Path:
        """Return a local file with the blob's bytes, verified when this process first uses it.

        The file belongs to the store or its cache: never write to it.

        Raises:
            StoreCorrupt: the blob is missing or damaged.
        """
        local = self._store.local_path(self.key(sha256))
        if local is not None:
            if not self._is_verified(sha256, local):
                raise _damaged(sha256)
            return local
        cached = self._cached(sha256)
        if cached.is_file():
            if self._is_verified(sha256, cached):
                _touch(cached)
                return cached
            _log.warning("a cached blob was damaged and is fetched again", extra={"sha256": sha256})
            cached.unlink(missing_ok=True)
        self._download(sha256, cached)
        return cached

    def delete(self, sha256: str) -> None:
        """Remove the blob, here and in the cache; one that is not stored is fine."""
        key = self.key(sha256)
        local = self._store.local_path(key) or self._cached(sha256)
        self._store.delete(key)
        self._cached(sha256).unlink(missing_ok=True)
        _verified.drop(local)

    def copies(self) -> list[str]:
        """Digests of the blobs that this machine's cache holds; none where the store is read in place."""
        return [path.name for path in self._cache.glob("blobs/*/*") if _SHA256.fullmatch(path.name)]

    def sound_copy(self, sha256: str) -> Path | None:
        """The cached copy, if there is one and its bytes have the digest; it is read whole."""
        cached = self._cached(sha256)
        return cached if cached.is_file() and _digest(cached)[0] == sha256 else None

    def drop_copy(self, sha256: str) -> None:
        """Remove the cached copy alone; none is fine."""
        cached = self._cached(sha256)
        cached.unlink(missing_ok=True)
        _verified.drop(cached)

    def _cached(self, sha256: str) -> Path:
        return self._cache / self.key(sha256)

    def _download(self, sha256: str, target: Path) -> None:
        chunks = self.read(sha256)
        temporary = target.with_name(f".{secrets.token_hex(16)}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as handle:
                for chunk in chunks:
                    handle.write(chunk)
            status = temporary.stat()
            temporary.replace(target)
        except OSError as error:
            raise disk.failed(f"The local cache {self._cache}", error) from error
        finally:
            temporary.unlink(missing_ok=True)
        _verified.add(target, (status.st_ino, status.st_size, status.st_mtime_ns))
        self._trim()

    def _is_verified(self, sha256: str, path: Path) -> bool:
        """Whether the file has the digest: computed once per process, and again when the file changed."""
        try:
            status = path.stat()
            identity = (status.st_ino, status.st_size, status.st_mtime_ns)
            if _verified.has(path, identity):
                return True
            if _digest(path)[0] != sha256:
                return False
        except FileNotFoundError:
            raise StoreCorrupt(f"The blob {sha256} is missing.") from None
        _verified.add(path, identity)
        return True

    def _trim(self) -> None:
        """Delete cached blobs, oldest use first, until the cache fits; what was just used stays."""
        entries = []
        for path in self._cache.glob("blobs/*/*"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another process trimmed it
            if not path.name.startswith("."):
                entries.append((status.st_atime, status.st_size, path))
            elif status.st_mtime < time.time() - STRAY_AFTER_S:
                path.unlink(missing_ok=True)  # what a process that crashed while downloading left
        excess = sum(size for _, size, _ in entries) - self._cache_bytes
        newest = time.time() - KEEP_USED_S
        for used, size, path in sorted(entries, key=lambda entry: entry[0]):
            if excess <= 0 or used > newest:
                break
            path.unlink(missing_ok=True)
            excess -= size


def verified(chunks: Iterator[bytes], sha256: str) -> Iterator[bytes]:
    """The chunks of a whole object; StoreCorrupt in place of the last one when it has another digest."""
    digest = hashlib.sha256()
    held: bytes | None = None  # one chunk behind, so that the last is given only when all is well
    for chunk in chunks:
        digest.update(chunk)
        if held is not None:
            yield held
        held = chunk
    if digest.hexdigest() != sha256:
        raise _damaged(sha256)
    if held is not None:
        yield held


def _touch(path: Path) -> None:
    """Note the last use in the access time; the modification time tells whether the bytes changed."""
    try:
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    except FileNotFoundError:
        raise Unavailable(
            f"The cached blob {path.name} was removed while it was fetched; try again."
        ) from None


def _damaged(sha256: str) -> StoreCorrupt:
    return StoreCorrupt(f"The blob {sha256} is damaged: its bytes have another digest.")


def _digest(path: Path) -> tuple[str, int]:
    """Return (sha256, bytes) of a file, in constant memory."""
    digest = hashlib.sha256()
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    size = 0
    with path.open("rb", buffering=0) as handle:
        while count := handle.readinto(buffer):
            digest.update(view[:count])
            size += count
    return digest.hexdigest(), size
