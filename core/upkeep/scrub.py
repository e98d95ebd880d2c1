"""The scrub: all archives and blobs with a row are hashed again, slowly, by one worker at a time.

Bits rot on disks, and people and programs damage files; without a check, the damage is found only
when the file is needed. The scrub reads all objects in the order of their keys, never faster than
`scrub_bytes_per_s`, and continues where it was when a worker ended or was killed. An object that is
missing or has another digest is marked (`core.retention.damage`), and checked again each minute until it is
sound. A row in the database is the lease, with a fence as for jobs, and holds the position, so two
workers never scrub at once.
"""

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.tables import IntegrityScrubProgress, StoredObjectDamageMark
from core.errors import StoredObjectDamaged
from core.retention import archives, damage, references, retention
from core.settings import Settings
from core.storage import Blobs, ObjectStorage

RECORD_S = 2.0
"""Seconds of work that a killed worker may leave to be repeated, besides the object at hand."""
LOOK_AGAIN_S = 60.0
"""Seconds between two checks of marked objects."""
LEAST_BYTES = 64 << 10
"""Bytes that a small object counts for, since opening one costs as much as reading this many."""
MARKED_RATE = 16 << 20
"""Bytes per second for checks of marked objects where there is no scrub."""
_MARKED = 10_000
_BATCH = 200
_ROW = 1
_BLOBS = "blobs/"


class _ScrubInterrupted(Exception):
    """Exception that ends a scrub: the worker stops, or another one has the lease."""


@dataclass(frozen=True)
class _ReferencedObject:
    """A stored object as rows refer to it: key and SHA-256 digest."""

    key: str
    sha256: str


class Scrubber:
    """Periodic check of all stored objects' digests (scrub), by one worker at a time.

    Args:
        worker: name of the worker.
        pause: function that waits for a number of seconds, and returns True if the worker ends.
    """

    def __init__(
        self,
        db: Database,
        store: ObjectStorage,
        settings: Settings,
        worker: str,
        pause: Callable[[float], bool],
    ) -> None:
        self._db = db
        self._store = store
        self._settings = settings
        self._worker = worker
        self._pause = pause
        self._rate = settings.scrub_bytes_per_s or MARKED_RATE
        # Each record renews the lease, so it must come well before the lease runs out.
        self._record_s = min(RECORD_S, settings.lease_s / 6)
        self._free_at = 0.0  # monotonic time at which the rate allows the next byte
        self._recorded_at = self._looked_at = 0.0
        self._fence = 0
        self._cursor = ""
        self._objects = self._bytes = 0  # hashed and not yet recorded

    def run_scrub_if_due(self) -> None:
        """Check marked objects again, then continue the scrub's pass or begin one that is due.

        Nothing is done while another worker has the lease. Errors of database and store in an
        outage pass through, and the next round continues.
        """
        is_due = self._take_scrub_lease_and_check_if_due()
        if is_due is None:
            return
        # The worker stops or another one has the lease, and the scrub is continued from there.
        with suppress(_ScrubInterrupted):
            try:
                self._check_marked_objects_again()
                if is_due and self._settings.scrub_bytes_per_s:
                    self._check_all_objects()
            finally:
                # If the lease cannot be released now, it runs out by itself.
                with suppress(SQLAlchemyError, _ScrubInterrupted):
                    self._record_progress_and_renew_lease(release=True)

    def _take_scrub_lease_and_check_if_due(self) -> bool | None:
        """Take the lease on the scrub, and return True if a pass is under way or due.

        Return None if another worker has the lease.
        """
        try:
            with self._db.write() as session:
                now = self._db.now(session)
                row = session.get(IntegrityScrubProgress, _ROW, with_for_update=True)
                if row is None:
                    row = IntegrityScrubProgress(
                        id=_ROW, fence=0, lease_until=0.0, cursor="", objects=0, bytes=0
                    )
                    session.add(row)
                if row.worker is not None and row.lease_until > now:
                    return None
                row.worker, row.fence, row.lease_until = (
                    self._worker,
                    # A worker that hangs for longer than its lease finds another fence, and stops.
                    row.fence + 1,
                    now + self._settings.lease_s,
                )
                self._fence, self._cursor = row.fence, row.cursor
                self._recorded_at = time.monotonic()
                return _is_scrub_due(row, now, self._settings.scrub_hours * 3600)
        except IntegrityError:
            return None  # another worker is adding the row

    def _record_progress_and_renew_lease(
        self, *, ended: bool = False, release: bool = False
    ) -> None:
        """Record the scrub's progress, and renew its lease.

        Raises:
            _ScrubInterrupted: another worker has the lease.
        """
        with self._db.write() as session:
            now = self._db.now(session)
            # Read again under the lock, since another worker may have taken over the lease.
            row = session.get_one(
                IntegrityScrubProgress, _ROW, with_for_update=True, populate_existing=True
            )
            if row.fence != self._fence:
                raise _ScrubInterrupted
            row.objects, row.bytes = row.objects + self._objects, row.bytes + self._bytes
            row.lease_until = now + self._settings.lease_s
            row.cursor = self._cursor
            if ended:
                row.cursor, row.ended_at = "", now
            if release:
                row.worker, row.lease_until = None, 0.0
        self._cursor = "" if ended else self._cursor
        self._objects = self._bytes = 0
        self._recorded_at = time.monotonic()

    def _check_all_objects(self) -> None:
        """Check the digests of all stored objects from the recorded position to the end."""
        if not self._cursor:
            with self._db.write() as session:
                session.get_one(
                    IntegrityScrubProgress, _ROW, with_for_update=True
                ).began_at = self._db.now(session)
        while True:
            with self._db.read() as session:
                batch = _read_next_stored_objects(session, self._cursor)
                marked = _find_keys_marked_as_damaged(session, [named.key for named in batch])
            for named in batch:
                self._check_object(named, named.key in marked)
                self._cursor = named.key
                self._objects += 1
                self._record_progress_if_due()
                if time.monotonic() - self._looked_at > LOOK_AGAIN_S:
                    self._check_marked_objects_again()
            if not batch:
                self._record_progress_and_renew_lease(ended=True)
                return

    def _check_marked_objects_again(self) -> None:
        """Check changed objects again that are marked as damaged, and unmark those no longer
        needed.
        """
        with self._db.read() as session:
            rows = damage.list_damage_marks(session, _MARKED)
        for row in rows:
            with self._db.read() as session:
                named = _find_referenced_object(session, row.key)
            if named is None:
                self._delete_unreferenced_blob_and_mark(row.key)
                continue
            info = self._store.stat(row.key)
            # Hashing an unchanged object again would find the same damage.
            if (info.tag if info is not None else "") != row.tag:
                self._check_object(named, True)
            self._record_progress_if_due()
        self._looked_at = time.monotonic()

    def _check_object(self, named: _ReferencedObject, marked: bool) -> None:
        """Check a stored object's digest; mark the object as damaged, or remove its mark."""
        kind, tag = self._inspect_object(named)
        # Look twice: the object may have been deleted or replaced during the first look.
        if kind is not None:
            with self._db.read() as session:
                if _find_referenced_object(session, named.key) is None:
                    return  # deleted while it was read
            kind, tag = self._inspect_object(named)
        # The usual case needs no transaction that writes.
        if kind is None and not marked:
            return
        with self._db.write() as session:
            if kind is None:
                damage.remove_damage_marks_of_keys(session, [named.key])
                return
            # Downloads made from it are forgotten with the mark, and rebuilt once it is sound.
            forgotten = damage.mark_object_damaged_and_delete_downloads(
                session, named.key, kind, tag, self._db.now(session)
            )
        if forgotten:
            self._delete_unused_blobs(forgotten)
            self._delete_unreferenced_blob_and_mark(named.key)

    def _inspect_object(self, named: _ReferencedObject) -> tuple[damage.Kind | None, str]:
        """Return what is wrong with a stored object, or None if it is sound, and the object's tag."""
        info = self._store.stat(named.key)
        if info is None:
            return "missing", ""
        path = self._store.get_local_path(named.key)
        if path is not None:
            _drop_file_from_page_cache(str(path))
        digest = hashlib.sha256()
        # Thousands of tiny objects would otherwise cost far more than the rate allows.
        self._wait_to_keep_byte_rate(max(0, LEAST_BYTES - info.size))
        try:
            for chunk in self._store.read(named.key):
                digest.update(chunk)
                self._bytes += len(chunk)
                self._wait_to_keep_byte_rate(len(chunk))
        except StoredObjectDamaged:
            return "missing", ""
        return (None if digest.hexdigest() == named.sha256 else "digest"), info.tag

    def _delete_unreferenced_blob_and_mark(self, key: str) -> None:
        """Remove a damaged blob without a row, and the mark of an object that no row refers to."""
        if key.startswith(_BLOBS):
            self._delete_unused_blobs([key.rpartition("/")[2]])
        with self._db.write() as session:
            if _find_referenced_object(session, key) is None:
                damage.remove_damage_marks_of_keys(session, [key])

    def _delete_unused_blobs(self, digests: list[str]) -> None:
        retention.delete_unused_blobs(
            self._db, Blobs(self._store, self._settings.make_folder("cache")), digests
        )

    def _wait_to_keep_byte_rate(self, count: int) -> None:
        """Wait until the scrub's rate limit allows `count` more bytes."""
        # Unused time is not saved up: the scrub is never faster than its rate.
        self._free_at = max(self._free_at, time.monotonic()) + count / self._rate
        while (seconds := self._free_at - time.monotonic()) > 0:
            if self._pause(min(seconds, self._record_s)):
                raise _ScrubInterrupted
            self._record_progress_if_due()

    def _record_progress_if_due(self) -> None:
        """Record the scrub's progress if enough time has passed."""
        if time.monotonic() - self._recorded_at >= self._record_s:
            self._record_progress_and_renew_lease()


def _is_scrub_due(row: IntegrityScrubProgress, now: float, period_s: float) -> bool:
    """Return True if a pass of the scrub is under way or due."""
    if row.began_at is None or row.ended_at is None or row.ended_at < row.began_at:
        return True
    return now >= row.began_at + period_s


def _read_next_stored_objects(session: Session, cursor: str) -> list[_ReferencedObject]:
    """Read the next objects in the store after the key `cursor`; empty after the last one."""
    # Archives come first, since their prefix sorts before that of blobs.
    if cursor < _BLOBS:
        rows = archives.list_next_archives_in_use(session, cursor, archives.PREFIX, _BATCH)
        if rows:
            return [_ReferencedObject(key, sha256) for key, sha256 in rows]
    last = cursor.rpartition("/")[2] if cursor.startswith(_BLOBS) else ""
    return [
        _ReferencedObject(Blobs.make_blob_key(digest), digest)
        for digest in references.list_next_digests_in_use(session, last, _BATCH)
    ]


def _find_referenced_object(session: Session, key: str) -> _ReferencedObject | None:
    """Return the object of a store key as database rows refer to it now, or None."""
    if key.startswith(_BLOBS):
        digest = key.rpartition("/")[2]
        return (
            _ReferencedObject(key, digest)
            if references.find_digests_still_in_use(session, [digest])
            else None
        )
    archive = archives.find_archive_digest(session, key)
    return None if archive is None else _ReferencedObject(key, archive)


def _find_keys_marked_as_damaged(session: Session, keys: list[str]) -> set[str]:
    """Return which store keys are marked as damaged."""
    return (
        set(
            session.scalars(
                select(StoredObjectDamageMark.key).where(StoredObjectDamageMark.key.in_(keys))
            )
        )
        if keys
        else set()
    )


def _drop_file_from_page_cache(path: str) -> None:
    """Drop a file from the system's page cache, so that the disk itself is read.

    Pages mapped by a process stay.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return  # deleted meanwhile
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
