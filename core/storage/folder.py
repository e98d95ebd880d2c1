"""A store in a folder of the local disk.

An object is written to `.incoming/`, fsynced, renamed into place, and its folder fsynced. A crash
at any moment leaves the old object, the new one, or a stray file in `.incoming/`. Stray files are
removed after a day.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from core.errors import ServiceDiskFull, StoredObjectDamaged, Unavailable
from core.files import disk
from core.files.disk_reserve import FULL_BYTES
from core.storage.objects import (
    CHUNK_BYTES,
    STRAY_AFTER_S,
    ObjectInfo,
    check_key_prefix,
    check_object_key,
    make_file_change_tag,
    require_nonnegative_range,
)

# The dot excludes the folder from keys and listings.
_INCOMING = ".incoming"
_COPY_BYTES = 1 << 30  # the kernel copies at most about 2 GiB in one call
# A try only fails if another process deletes the empty folder at the same moment.
_RENAME_TRIES = 50


class FolderStore:
    """Object store that keeps objects as files under the folder `root`; the key is the path below
    it.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_absolute():
            raise ValueError(f"the store's folder must be an absolute path, not {root}")
        self.root = root
        self._incoming = root / _INCOMING

    def __repr__(self) -> str:
        return f"FolderStore({str(self.root)!r})"

    def put_file(self, key: str, path: Path, *, move: bool = False) -> str:
        """Store a local file under a key in the folder store.

        `move` renames it if it lies on the same file system, and otherwise copies it.
        """
        target = self._get_object_path(key)
        # The source is opened outside of `_translate_disk_errors`: a missing source is the caller's
        # error, not an outage.
        with path.open("rb") as source, self._translate_disk_errors():
            if move and os.fstat(source.fileno()).st_dev == self._read_device_number():
                # A rename may reach the disk before the content of its file.
                os.fsync(source.fileno())
                self._rename_into_place(path, target)
                # Otherwise, a power cut could bring back the source beside the stored object.
                _sync_folder(path.parent)
                return _read_file_change_tag_or_empty(target)
            with self._open_incoming_file() as (temporary, handle):
                _copy_file(source, handle)
                self._sync_and_rename_file(temporary, handle, target)
                tag = _read_file_change_tag_or_empty(target)
        if move:
            path.unlink(missing_ok=True)
        return tag

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store bytes under a key in the folder store."""
        target = self._get_object_path(key)
        with self._translate_disk_errors(), self._open_incoming_file() as (temporary, handle):
            handle.write(data)
            self._sync_and_rename_file(temporary, handle, target)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return chunks of a stored object or of a range of it; raise StoredObjectDamaged if it is
        missing.
        """
        require_nonnegative_range(offset, length)
        path = self._get_object_path(key)
        with self._translate_disk_errors():
            try:
                handle = path.open("rb", buffering=0)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise StoredObjectDamaged(
                    f"The stored object {key} is missing.", extra={"object": key}
                ) from None
        # Of the open file: the object may be replaced while this one is read.
        size = os.fstat(handle.fileno()).st_size
        end = size if length is None else min(size, offset + length)
        # Not a generator itself, so that a missing object is reported before the first chunk.
        return self._read_chunks(handle, key, offset, end)

    def _read_chunks(self, handle: BinaryIO, key: str, position: int, end: int) -> Iterator[bytes]:
        with handle:
            while position < end:
                with self._translate_disk_errors():
                    chunk = os.pread(handle.fileno(), min(CHUNK_BYTES, end - position), position)
                if not chunk:
                    raise StoredObjectDamaged(
                        f"The stored object {key} became shorter while it was read."
                    )
                position += len(chunk)
                yield chunk

    def stat(self, key: str) -> ObjectInfo | None:
        """Return size, time and ETag of a stored object; None if there is no such object."""
        path = self._get_object_path(key)
        with self._translate_disk_errors():
            return _read_object_info(key, path)

    def delete(self, key: str) -> None:
        """Delete a stored object, and the folders that it leaves empty."""
        path = self._get_object_path(key)
        with self._translate_disk_errors():
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return
            except IsADirectoryError:
                return  # a folder of objects is not an object
            for folder in path.parents:
                if folder == self.root:
                    break
                try:
                    folder.rmdir()
                # Not empty, or removed by another process: nothing to do in either case.
                except OSError:
                    break

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the stored objects whose key starts with `prefix`."""
        check_key_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        # Not a generator itself, so that a wrong prefix is refused at once.
        return self._walk_folder(folder, prefix)

    def _walk_folder(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        with self._translate_disk_errors():
            try:
                with os.scandir(self.root / folder) as entries:
                    # Read at once: the folder must not stay open while the caller works. A link could
                    # lead the walk out of the store, or round in a circle.
                    children = [
                        (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries
                    ]
            except (FileNotFoundError, NotADirectoryError):
                return
        for name, is_folder in sorted(children):
            # Files that are still being written are no objects.
            if name.startswith("."):
                continue
            key = f"{folder}/{name}" if folder else name
            if is_folder:
                if f"{key}/".startswith(prefix) or prefix.startswith(f"{key}/"):
                    yield from self._walk_folder(key, prefix)
            elif key.startswith(prefix):
                with self._translate_disk_errors():
                    info = _read_object_info(key, self.root / key)
                if info is not None:
                    yield info

    def get_local_path(self, key: str) -> Path | None:
        """Return the file of a stored object, or None if there is none."""
        path = self._get_object_path(key)
        return path if path.is_file() else None

    def make_download_url(self, key: str, seconds: int, headers: Mapping[str, str]) -> str | None:
        """Return None, because a folder store has no URLs."""
        return None

    def check_store_usable(self) -> None:
        """Raise `Unavailable` unless the store's folder is writable, `ServiceDiskFull` if the disk
        is full.
        """
        with self._translate_disk_errors():
            file_system = os.statvfs(self.root)
        # A full disk lets the test of permissions pass and every write fail.
        if file_system.f_bavail * file_system.f_frsize < FULL_BYTES:
            raise ServiceDiskFull(f"There is no room left for the store's folder {self.root}.")
        if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
            raise Unavailable(f"The store's folder {self.root} cannot be written by this user.")

    def create_folder_or_bucket(self) -> None:
        """Create the store's folder, and remove files that crashed writers left more than a day
        ago.
        """
        with self._translate_disk_errors():
            self._incoming.mkdir(parents=True, exist_ok=True)
        self.remove_incomplete_objects()

    def remove_incomplete_objects(self, older_s: float = STRAY_AFTER_S) -> None:
        """Remove incomplete files older than `older_s` seconds that crashed writers left in
        `.incoming/`.
        """
        oldest = time.time() - older_s
        if not self._incoming.is_dir():
            return  # no writer has made the folder yet
        with self._translate_disk_errors(), os.scandir(self._incoming) as entries:
            for entry in entries:
                try:
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        Path(entry.path).unlink()
                except FileNotFoundError:
                    continue  # its writer finished meanwhile

    def _get_object_path(self, key: str) -> Path:
        return self.root / check_object_key(key)

    def _read_device_number(self) -> int:
        self._incoming.mkdir(parents=True, exist_ok=True)
        return self._incoming.stat().st_dev

    @contextmanager
    def _open_incoming_file(self) -> Iterator[tuple[Path, BinaryIO]]:
        """Open a new file in `.incoming/`, which is removed at the end unless it was renamed into
        the store.
        """
        self._incoming.mkdir(parents=True, exist_ok=True)
        temporary = self._incoming / secrets.token_hex(16)
        try:
            with temporary.open("xb") as handle:
                yield temporary, handle
        finally:
            temporary.unlink(missing_ok=True)

    def _sync_and_rename_file(self, temporary: Path, handle: BinaryIO, target: Path) -> None:
        handle.flush()
        # Before the rename, or a crash could leave an empty object under the final name.
        os.fsync(handle.fileno())
        self._rename_into_place(temporary, target)

    def _rename_into_place(self, source: Path, target: Path) -> None:
        """Rename a complete file to its place in the store, and create its folders.

        Retry if a concurrent delete removes them.
        """
        changed: set[Path] = {target.parent}
        for _ in range(_RENAME_TRIES):
            try:
                changed |= _make_missing_folders(target.parent)
                source.replace(target)
            except (FileNotFoundError, FileExistsError):
                # No further try helps if the source is gone, or a file lies in the folder's place.
                if not source.exists() or (target.parent.exists() and not target.parent.is_dir()):
                    raise
                continue
            # A new folder's entry is in its parent, so each of them must reach the disk.
            for folder in changed:
                _sync_folder(folder)
            return
        raise Unavailable(f"The folder {target.parent} disappears as often as it is made.")

    @contextmanager
    def _translate_disk_errors(self) -> Iterator[None]:
        """Convert the disk's errors (full, read-only, not permitted, input/output) into
        `Unavailable`.
        """
        try:
            yield
        except OSError as error:
            raise disk.convert_os_error_to_disk_error(
                f"The store's folder {self.root}", error
            ) from error


def _make_missing_folders(folder: Path) -> set[Path]:
    """Create `folder` and its parents; return the folders that got a new entry."""
    changed: set[Path] = set()
    at = folder
    while not at.is_dir():
        changed.add(at.parent)
        at = at.parent
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def _copy_file(source: BinaryIO, target: BinaryIO) -> None:
    """Copy a whole file inside the kernel, or by reference where the file system shares blocks."""
    remaining = os.fstat(source.fileno()).st_size
    if not hasattr(os, "copy_file_range"):  # only Linux has it
        shutil.copyfileobj(source, target, _COPY_BYTES)
        return
    while remaining > 0:
        try:
            copied = os.copy_file_range(
                source.fileno(), target.fileno(), min(remaining, _COPY_BYTES)
            )
        except OSError:  # not supported between these file systems; sendfile reports any real error
            copied = os.sendfile(
                target.fileno(), source.fileno(), None, min(remaining, _COPY_BYTES)
            )
        if copied == 0:
            # Without this, the loop would never end.
            raise OSError(0, "the source became shorter while it was stored")
        remaining -= copied


def _sync_folder(folder: Path) -> None:
    """Write a folder's entries to disk, so that they survive a power cut."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return  # removed meanwhile: there is no entry to preserve
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_file_change_tag_or_empty(path: Path) -> str:
    try:
        return make_file_change_tag(path.stat())
    except FileNotFoundError:  # swept already
        return ""


def _read_object_info(key: str, path: Path) -> ObjectInfo | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not path.is_file():
        return None
    return ObjectInfo(key, status.st_size, status.st_mtime, make_file_change_tag(status))
