"""What a sweep would remove, without removing anything: the sweep itself, on a copy of the database.

The copy is a SQLite file that is thrown away; the store is the real one, but deletions and writes are only
noted, and what is noted as deleted is not there any more. So what is reported is what a sweep does, and a running
service is neither changed nor held up.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sqlalchemy import Table, func, select
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import (
    Alias,
    Base,
    Chunk,
    Event,
    Export,
    Idempotency,
    Job,
    Model,
    Owner,
    Part,
    Result,
    Task,
    Upload,
    Version,
)
from core.settings import Settings
from core.store import Blobs, ObjectInfo, Store
from core.work import sweep

_COPIED = (
    *(Owner, Model, Task, Job, Event, Version, Part, Export, Result, Base, Alias, Idempotency, Upload, Chunk),
)
"""What a sweep reads, in the order of their references."""
_COUNTED = (Event, Idempotency, Part, Export, Upload)
"""Tables whose rows a sweep deletes."""
_ROWS = 1000


@dataclass(frozen=True)
class Removal:
    """One thing that a sweep would remove.

    Attributes:
        reason: what it is that nobody needs any more.
        object: the key in the store, or how many rows of which table.
        bytes: of the object; 0 for rows.
        modified: when the object was stored, seconds since 1970; 0 for rows.
    """

    reason: str
    object: str
    bytes: int
    modified: float


def dry_run(
    db: Database,
    store: Store,
    settings: Settings,
    *,
    grace_days: float = sweep.BLOB_DAYS,
    late_s: float = 0.0,
) -> list[Removal]:
    """Tell what a sweep would remove from database and store.

    A machine's own spool and cache are not reported: they are other machines' too.

    Args:
        grace_days: as of `sweep.steps`.
        late_s: seconds by which the sweep is set back: what is reported should have been removed so long ago.
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="perennial-dry-run-") as name:
        folder = Path(name)
        copy = _Copy(db, folder, late_s)
        try:
            noted = _Noted(store)
            blobs = Blobs(noted, folder / "cache")
            steps = sweep.steps(copy, noted, blobs, settings, grace_days=grace_days, whole=True)
            rows = copy.counts()
            for reason, step in steps.items():
                step()
                for info in noted.taken():
                    found.append(Removal(reason, info.key, info.size, info.modified))
                left = copy.counts()
                for table in rows:
                    if left[table] < rows[table]:
                        text = f"{rows[table] - left[table]} rows of {table}"
                        found.append(Removal(reason, text, 0, 0.0))
                rows = left
        finally:
            copy.close()
    return found


class _Copy(Database):
    """A copy of a database's rows as they are at one moment, with that database's clock."""

    def __init__(self, source: Database, folder: Path, late_s: float) -> None:
        super().__init__(f"sqlite:///{folder / 'copy.db'}")
        Owner.metadata.create_all(self.engine)
        with source.read() as there:
            if source.dialect == "postgresql":
                there.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            ahead = source.now(there) - late_s
            with self.write() as here:
                ahead -= super().now(here)
                for row_class in _COPIED:
                    table = cast(Table, row_class.__table__)
                    query = select(table).execution_options(yield_per=_ROWS)
                    for rows in there.execute(query).mappings().partitions():
                        here.execute(table.insert(), [dict(row) for row in rows])
        self._ahead = ahead

    def now(self, session: Session) -> float:
        return super().now(session) + self._ahead

    def counts(self) -> dict[str, int]:
        """Rows of each table that a sweep deletes from."""
        with self.read() as session:
            return {
                table.__tablename__: session.execute(select(func.count()).select_from(table)).scalar_one()
                for table in _COUNTED
            }


class _Noted:
    """A store in which deletions only look as if they happened."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gone: set[str] = set()
        self._taken: list[ObjectInfo] = []

    def taken(self) -> list[ObjectInfo]:
        """What was deleted since the last call."""
        taken, self._taken = self._taken, []
        return taken

    def delete(self, key: str) -> None:
        info = self.stat(key)
        if info is not None:
            self._gone.add(key)
            self._taken.append(info)

    def put_file(self, key: str, path: Path, *, move: bool = False) -> str:
        raise NotImplementedError("a sweep stores no file")

    def put_bytes(self, key: str, data: bytes) -> None:
        """The sweep's own mark: not set."""

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return self._store.read(key, offset, length)

    def stat(self, key: str) -> ObjectInfo | None:
        return None if key in self._gone else self._store.stat(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return (info for info in self._store.list(prefix) if info.key not in self._gone)

    def local_path(self, key: str) -> Path | None:
        return None if key in self._gone else self._store.local_path(key)

    def presign(self, key: str, seconds: int, headers: Mapping[str, str]) -> str | None:
        return self._store.presign(key, seconds, headers)

    def check(self) -> None:
        self._store.check()

    def prepare(self) -> None:
        """Nothing is made."""

    def remove_strays(self, older_s: float = 0.0) -> None:
        """Nothing is removed."""
