"""Content-addressed blobs, each written once and shared: the key is the sha256 of the bytes.

A blob under `blobs/ab/abcdef…` never changes, unless a disk or a person damages it. Its bytes are
therefore hashed before use or while they are read, and a process remembers for a while which blobs
it has verified (`core.storage.verified`). Storing a blob again replaces it unless it is known to be
sound. A folder store is read in place; blobs of S3 are copied into a local cache.
"""

import hashlib
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Protocol

from core.errors import StoredObjectDamaged, Unavailable
from core.files import disk
from core.storage.objects import (
    CHUNK_BYTES,
    STRAY_AFTER_S,
    ObjectInfo,
    ObjectStorage,
    make_file_change_tag,
)
from core.storage.verified import RecentVerifications

_SHA256 = re.compile(r"[0-9a-f]{64}")
CACHE_BYTES = 20 << 30
TRIM_PARTS = 20
"""A part of the cache that may be added before it is trimmed again."""
KEEP_USED_S = 3600.0
"""Seconds for which a cached blob stays after its last use, whatever the cache's size.

A job may be about to open it.
"""
SAME_USE_S = 60.0
"""Seconds within which uses of a cached blob count as one.

A job reads hundreds of files of an old model, and recording each use takes two system calls.
"""

_log = logging.getLogger(__name__)
VERIFIED = RecentVerifications()
"""Verified files and objects, shared by all `Blobs` of this process. `open_object_store` sets its age."""
_UNTRIMMED: dict[tuple[Path, int], int] = {}
"""Bytes cached since the last trim, by cache folder and size; shared like `VERIFIED`, since each job
makes its own `Blobs`."""
# Locks by the first byte of the digest: of several threads that verify one blob, only one reads it.
_verifying = [threading.RLock() for _ in range(256)]


class DamageMarks(Protocol):
    """Marks of damaged blobs, by store key, that all processes share."""

    def is_marked(self, key: str) -> bool:
        """Return True if a blob is marked as damaged.

        Then this process must not trust its memory.
        """
        ...

    def mark_damaged(self, key: str) -> None:
        """Mark a blob as damaged."""
        ...

    def remove_mark(self, key: str) -> None:
        """Remove a blob's mark of damage, after sound bytes were stored."""
        ...


class Blobs:
    """Stored files addressed by their SHA-256 digest, with a local cache. Safe for threads and
    processes.

    Args:
        store: the store that holds the blobs.
        cache: local folder for copies of blobs, used if the store has no local files.
        cache_bytes: size to which the cache is trimmed, least recently used first.
        marks: marks of damaged blobs for all processes; None turns marking off.
    """

    def __init__(
        self,
        store: ObjectStorage,
        cache: Path,
        *,
        cache_bytes: int = CACHE_BYTES,
        marks: DamageMarks | None = None,
    ) -> None:
        self._store = store
        self._cache = cache
        self._cache_bytes = cache_bytes
        self._marks = marks

    @staticmethod
    def make_blob_key(sha256: str) -> str:
        """Return the store key of the blob with a digest (64 lower-case hexadecimal digits, else
        ValueError).
        """
        # A digest becomes part of a path, so anything else is refused.
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"not a sha256: {sha256[:80]!r}")
        return f"blobs/{sha256[:2]}/{sha256}"

    def put_file(
        self,
        path: Path,
        *,
        move: bool = False,
        link: bool = False,
        stored: Collection[str] = (),
    ) -> tuple[str, int]:
        """Store a file as a blob and return its (sha256, bytes).

        Nothing is sent if the blob is stored already and was verified recently.

        Args:
            move: remove the file afterwards.
            link: also link the file into the cache. Nobody may write to it any more.
            stored: digests of sound blobs that rows refer to; the store is not asked for them.
        """
        sha256, size = _compute_file_digest_and_size(path)
        if sha256 not in stored:
            self._store_unless_sound(sha256, size, path, move)
        # A blob that was stored already leaves the file, which the caller does not want any more.
        if move:
            path.unlink(missing_ok=True)
        elif link:
            self._link_into_cache(path, sha256)
        return sha256, size

    def _store_unless_sound(self, sha256: str, size: int, path: Path, move: bool) -> None:
        """Send a file to the store, unless its blob is there and was verified recently."""
        key = self.make_blob_key(sha256)
        info = self._store.stat(key)
        marked = info is not None and self._marks is not None and self._marks.is_marked(key)
        # An object that nobody has verified lately may be damaged, and correct bytes repair it.
        if marked or info is None or info.size != size or not self._is_verified_recently(info):
            tag = self._store.put_file(key, path, move=move)
            if marked and self._marks is not None:
                # At once, since downloads and jobs refuse the blob as long as it is marked.
                self._marks.remove_mark(key)
            VERIFIED.remember_verified(self._build_verified_object_name(key), tag)

    def has(self, sha256: str) -> bool:
        """Return True if the blob is stored."""
        return self._store.stat(self.make_blob_key(sha256)) is not None

    def size(self, sha256: str) -> int | None:
        """Return the blob's size in bytes, or None if it is not stored."""
        info = self._store.stat(self.make_blob_key(sha256))
        return None if info is None else info.size

    def require_blob_digest(self, sha256: str) -> None:
        """Verify a blob's digest, unless this process did so recently and the blob is unchanged.

        Raises:
            StoredObjectDamaged: the blob is missing or damaged.
        """
        try:
            require_object_digest(self._store, self.make_blob_key(sha256), sha256)
        except DamagedBlob:
            raise self._mark_as_damaged(sha256) from None

    def is_remote_or_undamaged(self, sha256: str) -> bool:
        """Return True if a blob is in a remote store, or undamaged on a local disk.

        Only a blob on a local disk is verified now; others are verified while they are read.
        """
        if self._store.get_local_path(self.make_blob_key(sha256)) is None:
            return True
        try:
            self.require_blob_digest(sha256)
        except StoredObjectDamaged:
            return False
        return True

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return chunks of a blob's bytes, or of a range of them.

        The blob is verified first. The exception is a whole blob that is not on a local disk, which
        is verified while it is read.

        Raises:
            StoredObjectDamaged: the blob is missing or damaged. This is raised at once, or in
                place of the last chunk if the blob is verified while it is read. No reader reaches
                the end of a wrong blob.
        """
        key = self.make_blob_key(sha256)
        if offset == 0 and length is None:
            if self._store.get_local_path(key) is not None:
                self.require_blob_digest(sha256)
            # Not a generator itself, so that a missing blob is reported before the first chunk.
            return self._mark_damage_while_reading(
                iterate_verified_blob_chunks(self._store.read(key), key, sha256), sha256
            )
        self.require_blob_digest(sha256)
        return self._store.read(key, offset, length)

    def fetch_verified_file(self, sha256: str) -> Path:
        """Return a local file with a blob's bytes, downloaded if needed and verified recently.

        The file belongs to the store or its cache: never write to it.

        Raises:
            StoredObjectDamaged: the blob is missing or damaged.
        """
        local = self._store.get_local_path(self.make_blob_key(sha256))
        if local is not None:
            self.require_blob_digest(sha256)
            return local
        cached = self._get_cached_path(sha256)
        # Several requests for one version would otherwise download the same blob at once.
        with _verifying[int(sha256[:2], 16)]:
            status = _get_file_status_or_none(cached)
            if status is not None:
                if _is_cached_copy_sound(sha256, cached, status):
                    _record_cached_file_last_use(cached, status)
                    return cached
                _log.warning(
                    "a cached blob was damaged and is fetched again", extra={"sha256": sha256}
                )
                cached.unlink(missing_ok=True)
            self._download_blob(sha256, cached)
        return cached

    def find_recently_verified_file(self, sha256: str) -> Path | None:
        """Return a local file with a blob's bytes, without reading it.

        Return None if the blob must be fetched or verified, or its use be recorded
        (`fetch_verified_file`). Raises Unavailable if the disk does not work.
        """
        key = self.make_blob_key(sha256)
        local = self._store.get_local_path(key)
        if local is not None:
            info = self._store.stat(key)
            return local if info is not None and self._is_verified_recently(info) else None
        cached = self._get_cached_path(sha256)
        status = _get_file_status_or_none(cached)
        if status is None or not _is_use_recorded(status):
            return None
        is_sound = VERIFIED.is_verified(str(cached), make_file_change_tag(status))
        return cached if is_sound else None

    def drop_cached_copy_or_mark_damaged(self, sha256: str) -> StoredObjectDamaged:
        """Stop serving a damaged cached file of a blob, and return the error about it."""
        if self._store.get_local_path(self.make_blob_key(sha256)) is not None:
            return self._mark_as_damaged(sha256)
        self.remove_cached_file(sha256)  # the stored blob may still be sound
        return _build_damaged_blob_error(self.make_blob_key(sha256))

    def _mark_as_damaged(self, sha256: str) -> StoredObjectDamaged:
        key = self.make_blob_key(sha256)
        VERIFIED.forget_verified_name(self._build_verified_object_name(key))
        if self._marks is not None:
            self._marks.mark_damaged(key)
        return _build_damaged_blob_error(key)

    def delete(self, sha256: str) -> None:
        """Delete a blob from the store and the cache, if present."""
        key = self.make_blob_key(sha256)
        self._store.delete(key)
        # The same bytes may be stored again later, and must be verified then.
        VERIFIED.forget_verified_name(self._build_verified_object_name(key))
        self.remove_cached_file(sha256)

    def list_cached_digests(self) -> list[str]:
        """Return the digests of the blobs in the local cache: none if the store is read in place."""
        return [path.name for path in self._cache.glob("blobs/*/*") if _SHA256.fullmatch(path.name)]

    def find_sound_cached_file(self, sha256: str) -> Path | None:
        """Read the cached copy of a blob whole; return it, or None if it is missing or damaged."""
        cached = self._get_cached_path(sha256)
        return (
            cached
            if cached.is_file() and _compute_file_digest_and_size(cached)[0] == sha256
            else None
        )

    def remove_cached_file(self, sha256: str) -> None:
        """Remove only the cached copy of a blob, if present."""
        cached = self._get_cached_path(sha256)
        cached.unlink(missing_ok=True)
        VERIFIED.forget_verified_name(str(cached))

    def _build_verified_object_name(self, key: str) -> str:
        return f"{self._store!r}/{key}"

    def _is_verified_recently(self, info: ObjectInfo) -> bool:
        name = self._build_verified_object_name(info.key)
        # S3 returns only the tag of the content for what it has just stored, without the time.
        return VERIFIED.is_verified(name, info.tag) or VERIFIED.is_verified(name, info.content)

    def _remember_verified(self, info: ObjectInfo) -> None:
        VERIFIED.remember_verified(self._build_verified_object_name(info.key), info.tag)

    def _mark_damage_while_reading(self, chunks: Iterator[bytes], sha256: str) -> Iterator[bytes]:
        try:
            yield from chunks
        except DamagedBlob:
            raise self._mark_as_damaged(sha256) from None

    def _get_cached_path(self, sha256: str) -> Path:
        return self._cache / self.make_blob_key(sha256)

    def _link_into_cache(self, path: Path, sha256: str) -> None:
        """Hard-link a blob's stored file into the cache, so that this machine need not download it.

        A link uses no extra space. If the file is on another disk, nothing is done.
        """
        cached = self._get_cached_path(sha256)
        if self._store.get_local_path(self.make_blob_key(sha256)) is not None or cached.exists():
            return
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, cached)
            # Read after the link, which changes the time of change and so the tag.
            status = cached.stat()
        except OSError:
            return
        VERIFIED.remember_verified(str(cached), make_file_change_tag(status))
        self._trim_cache_if_due(status.st_size)

    def _download_blob(self, sha256: str, target: Path) -> None:
        info = self._store.stat(self.make_blob_key(sha256))
        # The tag was read before: if the object is replaced meanwhile, the new one is not trusted.
        chunks = self.read(sha256)
        # Renamed into place when it is whole, so that other processes never see half a blob.
        temporary = target.with_name(f".{secrets.token_hex(16)}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as handle:
                for chunk in chunks:
                    handle.write(chunk)
            temporary.replace(target)
            status = target.stat()
        except OSError as error:
            raise disk.convert_os_error_to_disk_error(
                f"The local cache {self._cache}", error
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        # The bytes were hashed while they were read.
        VERIFIED.remember_verified(str(target), make_file_change_tag(status))
        if info is not None:
            self._remember_verified(info)
        self._trim_cache_if_due(status.st_size)

    def _trim_cache_if_due(self, size: int) -> None:
        """Trim the blob cache after a file of `size` bytes, unless little was added since the last
        time.

        A trim looks at every file, of which an old model has thousands.
        """
        cache = self._cache, self._cache_bytes
        # The first trim is due at once: what earlier processes have cached is unknown.
        untrimmed = _UNTRIMMED[cache] + size if cache in _UNTRIMMED else self._cache_bytes
        is_due = untrimmed >= self._cache_bytes // TRIM_PARTS
        _UNTRIMMED[cache] = 0 if is_due else untrimmed
        if is_due:
            self._trim_cache()

    def _trim_cache(self) -> None:
        """Delete the least recently used cached blobs until the cache fits, but no recently used
        ones.
        """
        entries = []
        for path in self._cache.glob("blobs/*/*"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another process trimmed it
            if not path.name.startswith("."):
                entries.append((status.st_atime, status.st_size, path))
            elif status.st_mtime < time.time() - STRAY_AFTER_S:
                path.unlink(missing_ok=True)  # left by a process that crashed while it downloaded
        excess = sum(size for _, size, _ in entries) - self._cache_bytes
        newest = time.time() - KEEP_USED_S - SAME_USE_S
        for used_at, size, path in sorted(entries, key=lambda entry: entry[0]):
            # In the order of last use, so all that follow were used even later.
            if excess <= 0 or used_at > newest:
                break
            path.unlink(missing_ok=True)
            excess -= size


def require_object_digest(store: ObjectStorage, key: str, sha256: str) -> None:
    """Verify a stored object's digest, unless this process did so recently and the object is
    unchanged.

    Raises:
        DamagedBlob: the object has another digest.
        StoredObjectDamaged: the object is missing.
    """
    name, info = f"{store!r}/{key}", store.stat(key)
    if info is not None and VERIFIED.is_verified(name, info.tag):
        return
    # Several requests for one object would otherwise read it at once.
    with _verifying[int(sha256[:2], 16)]:
        # Another thread may have verified or repaired it meanwhile.
        info = store.stat(key)
        if info is not None and VERIFIED.is_verified(name, info.tag):
            return
        # Forgotten before the bytes are read: if that fails, nothing is trusted.
        VERIFIED.forget_verified_name(name)
        digest = hashlib.sha256()
        for chunk in store.read(key):
            digest.update(chunk)
        if digest.hexdigest() != sha256:
            raise _build_damaged_blob_error(key)
        if info is not None:
            VERIFIED.remember_verified(name, info.tag)


class DamagedBlob(StoredObjectDamaged):
    """Error: a blob's bytes do not have the digest in its name."""


def iterate_verified_blob_chunks(chunks: Iterator[bytes], key: str, sha256: str) -> Iterator[bytes]:
    """Yield the chunks of a whole blob, and raise an error at the end if its digest is wrong.

    Raises:
        DamagedBlob: the digest differs; raised in place of the last chunk.
    """
    digest = hashlib.sha256()
    # One chunk behind, so that the last is yielded only after the digest has matched.
    pending: bytes | None = None
    for chunk in chunks:
        digest.update(chunk)
        if pending is not None:
            yield pending
        pending = chunk
    if digest.hexdigest() != sha256:
        raise _build_damaged_blob_error(key)
    if pending is not None:
        yield pending


def _get_file_status_or_none(path: Path) -> os.stat_result | None:
    """Return the status of a file; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _is_cached_copy_sound(sha256: str, path: Path, status: os.stat_result) -> bool:
    """Return True if a cached file of this status has the digest of its blob.

    It is not read if this process verified it recently.
    """
    tag = make_file_change_tag(status)
    if VERIFIED.is_verified(str(path), tag):
        return True
    try:
        if _compute_file_digest_and_size(path)[0] != sha256:
            return False
    except FileNotFoundError:
        return False  # trimmed by another process
    VERIFIED.remember_verified(str(path), tag)
    return True


def _is_use_recorded(status: os.stat_result) -> bool:
    """Return True if a cached file's last use was recorded just now."""
    return abs(time.time() - status.st_atime) < SAME_USE_S


def _record_cached_file_last_use(path: Path, status: os.stat_result) -> None:
    """Set a cached file's access time to now, to record its last use, unless that was just
    recorded.

    The modification time stays as it is, because it shows whether the bytes changed.
    """
    if _is_use_recorded(status):
        return
    try:
        # Mount options such as noatime keep reads from updating the access time.
        os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))
        VERIFIED.replace_verified_tag(str(path), make_file_change_tag(path.stat()))
    except FileNotFoundError:
        raise Unavailable(
            f"The cached blob {path.name} was removed while it was fetched; try again."
        ) from None


def _build_damaged_blob_error(key: str) -> DamagedBlob:
    return DamagedBlob(
        f"The stored object {key} is damaged: its bytes have another digest.", extra={"object": key}
    )


def _compute_file_digest_and_size(path: Path) -> tuple[str, int]:
    """Return (sha256, bytes) of a file, read in constant memory."""
    digest = hashlib.sha256()
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    size = 0
    # One buffer for the whole file, since Python's own would copy every byte once more.
    with path.open("rb", buffering=0) as handle:
        while count := handle.readinto(buffer):
            digest.update(view[:count])
            size += count
    return digest.hexdigest(), size
