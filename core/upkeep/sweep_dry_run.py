"""Dry run of a sweep: the sweep itself, on a copy of the database and without deletions.

The copy is a temporary SQLite file. The store is the real one, but deletions and writes are only
recorded, and objects recorded as deleted are hidden. The report is therefore what a sweep would do,
and a running service is neither changed nor delayed.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sqlalchemy import Table, func, select
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.tables import (
    Alias,
    ExportedDownload,
    IdempotencyRecord,
    Job,
    Model,
    Owner,
    StoredJobEvent,
    StoredUploadPiece,
    Task,
    Upload,
    UploadedBase,
    Version,
    VersionPart,
    VersionTaskResult,
)
from core.settings import Settings
from core.storage import Blobs, ObjectInfo, ObjectStorage
from core.upkeep import sweep

_COPIED = (
    *(
        Owner,
        Model,
        Task,
        Job,
        StoredJobEvent,
        Version,
        VersionPart,
        ExportedDownload,
        VersionTaskResult,
        UploadedBase,
        Alias,
        IdempotencyRecord,
        Upload,
        StoredUploadPiece,
    ),
)
"""Tables that a sweep reads, in the order of their references."""
_COUNTED = (StoredJobEvent, IdempotencyRecord, VersionPart, ExportedDownload, Upload)
"""Tables whose rows a sweep deletes."""
_ROWS = 1000


@dataclass(frozen=True)
class SweepRemoval:
    """Something that a sweep would remove, as a dry run reports it.

    Attributes:
        reason: description of what is no longer needed.
        object: key in the store, or number of rows and their table.
        bytes: size of the object; 0 for rows.
        modified: time at which the object was stored, in seconds since 1970; 0 for rows.
    """

    reason: str
    object: str
    bytes: int
    modified: float


def list_sweep_removals(
    db: Database,
    store: ObjectStorage,
    settings: Settings,
    *,
    grace_days: float = sweep.BLOB_DAYS,
    late_s: float = 0.0,
) -> list[SweepRemoval]:
    """Return what a sweep would remove from database and store, without removing it.

    A machine's own spool and cache are not reported, since each machine has its own.

    Args:
        grace_days: see `sweep.SweepOptions`.
        late_s: seconds by which the clock of the sweep is set back; everything reported should have
            been removed that long ago.
    """
    removals = []
    with tempfile.TemporaryDirectory(prefix="perennial-dry-run-") as name:
        folder = Path(name)
        copy = _DryRunDatabaseCopy(db, folder, late_s)
        try:
            noted = _DryRunStore(store)
            # A cache of its own, so that no copy of this machine is deleted.
            blobs = Blobs(noted, folder / "cache")
            extent = sweep.SweepOptions(grace_days, whole=True)
            steps = sweep.build_sweep_steps(copy, noted, blobs, settings, extent)
            rows = copy.count_rows_by_table()
            for reason, step in steps.items():
                step()
                for info in noted.pop_deleted_objects():
                    removals.append(SweepRemoval(reason, info.key, info.size, info.modified))
                remaining_rows = copy.count_rows_by_table()
                for table in rows:
                    if remaining_rows[table] < rows[table]:
                        text = f"{rows[table] - remaining_rows[table]} rows of {table}"
                        removals.append(SweepRemoval(reason, text, 0, 0.0))
                rows = remaining_rows
        finally:
            copy.close()
    return removals


class _DryRunDatabaseCopy(Database):
    """Copy of a database for a dry run, with that database's clock."""

    def __init__(self, source: Database, folder: Path, late_s: float) -> None:
        super().__init__(f"sqlite:///{folder / 'copy.db'}")
        Owner.metadata.create_all(self.engine)
        with source.read() as source_session:
            # All tables as of one moment, or rows could refer to others that are missing.
            if source.dialect == "postgresql":
                source_session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            # The steps judge ages by the database's clock, so the copy must have the same one.
            ahead = source.now(source_session) - late_s
            with self.write() as copy_session:
                ahead -= super().now(copy_session)
                for row_class in _COPIED:
                    table = cast(Table, row_class.__table__)
                    query = select(table).execution_options(yield_per=_ROWS)
                    for rows in source_session.execute(query).mappings().partitions():
                        copy_session.execute(table.insert(), [dict(row) for row in rows])
        self._ahead = ahead

    def now(self, session: Session) -> float:
        return super().now(session) + self._ahead

    def count_rows_by_table(self) -> dict[str, int]:
        """Count the rows of each table that a sweep deletes from."""
        with self.read() as session:
            return {
                table.__tablename__: session.execute(
                    select(func.count()).select_from(table)
                ).scalar_one()
                for table in _COUNTED
            }


class _DryRunStore:
    """Object store in which deletions are only recorded, for a dry run."""

    def __init__(self, store: ObjectStorage) -> None:
        self._store = store
        self._gone: set[str] = set()
        self._taken: list[ObjectInfo] = []

    def pop_deleted_objects(self) -> list[ObjectInfo]:
        """Return the objects that were deleted since the last call."""
        deleted, self._taken = self._taken, []
        return deleted

    def delete(self, key: str) -> None:
        info = self.stat(key)
        if info is not None:
            self._gone.add(key)
            self._taken.append(info)

    def put_file(self, key: str, path: Path, *, move: bool = False) -> str:
        raise NotImplementedError("a sweep stores no file")

    def put_bytes(self, key: str, data: bytes) -> None:
        """Ignore the mark that the sweep writes to the store."""

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return self._store.read(key, offset, length)

    def stat(self, key: str) -> ObjectInfo | None:
        return None if key in self._gone else self._store.stat(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return (info for info in self._store.list(prefix) if info.key not in self._gone)

    def get_local_path(self, key: str) -> Path | None:
        return None if key in self._gone else self._store.get_local_path(key)

    def make_download_url(self, key: str, seconds: int, headers: Mapping[str, str]) -> str | None:
        return self._store.make_download_url(key, seconds, headers)

    def check_store_usable(self) -> None:
        self._store.check_store_usable()

    def create_folder_or_bucket(self) -> None:
        """Do nothing, since a dry run creates nothing in the store."""

    def remove_incomplete_objects(self, older_s: float = 0.0) -> None:
        """Do nothing, since a dry run removes nothing from the store."""
