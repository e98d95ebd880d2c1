"""Backup of a running service with an SQLite database, and its restoration.

`copy_missing_store_objects` and `find_objects_missing_in_store` also serve a PostgreSQL database,
whose dump comes from `pg_dump`.

The order is objects, database, objects again. Objects never change once they are stored, so two
passes cannot mix states. But they are deleted: an archive once it is decoded, training images once
they are learned. A database that is copied first could name objects that are gone when the objects
are copied. One that is copied last could name objects that the copy never saw. The first pass
therefore copies most objects. Then database and new objects are copied, in seconds, until all
objects named by the copied database are there. Other objects are left out.
"""

import json
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from core.database import sqlite_damage
from core.database.copies import copy_sqlite_database
from core.database.migrate import read_schema_revision
from core.database.session import Database
from core.errors import StoredObjectDamaged
from core.settings import Settings
from core.storage import ObjectInfo, ObjectStorage, open_object_store
from core.storage.folder import FolderStore
from core.storage.objects import check_object_key
from core.storage.timed import TimedStore
from core.upkeep.consistency import ReferencedObject, iterate_referenced_objects
from core.webhooks import webhook_secret

DATABASE = "perennial.db"
STORE = "store"
KEYS = ("admin-key", webhook_secret.KEY_NAME)
"""Without the second key, nothing is sent to webhooks until they are rotated."""
CONTENTS = "backup.json"
"""Written last: a folder without it is not a backup."""
ROUNDS = 20


class BackupNotPossible(Exception):
    """A backup or restore is not possible; nothing of the service was changed."""


def create_backup(settings: Settings, target: Path) -> dict[str, Any]:
    """Copy database, objects and keys into the empty folder `target`, beside a running service.

    Returns:
        The content of `backup.json`: `objects`, `bytes`, `schema`, `made_at` (seconds since 1970).

    Raises:
        BackupNotPossible: `target` is not empty, the database is not SQLite, or so much was deleted
            meanwhile that no round was complete.
    """
    file = _require_sqlite_database_path(settings)
    if target.exists() and any(target.iterdir()):
        raise BackupNotPossible(f"{target} is not empty: a backup wants a folder of its own.")
    # The copy holds keys and images, which are the service user's alone.
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    source, copy = open_object_store(settings), FolderStore(target.absolute() / STORE)
    copy.create_folder_or_bucket()
    # First pass, with most of the objects: the rounds below then take seconds.
    copy_missing_store_objects(source, copy)
    for _ in range(ROUNDS):
        made_at = time.time()
        # Before the second pass over the objects: a later copy could name some that it has missed.
        copy_sqlite_database(file, target / DATABASE)
        copy_missing_store_objects(source, copy)
        database = _open_sqlite_database(target / DATABASE)
        try:
            named_objects, schema = (
                list(iterate_referenced_objects(database)),
                read_schema_revision(database),
            )
        finally:
            database.close()
        if not find_objects_missing_in_store(named_objects, copy):
            break
    else:
        raise BackupNotPossible(
            f"In {ROUNDS} rounds something was always deleted while it was copied: try again."
        )
    _delete_unreferenced_objects(named_objects, copy)
    for name in KEYS:
        if (settings.data_dir / name).is_file():
            shutil.copy2(settings.data_dir / name, target / name)
    sizes = [info.size for info in copy.list("")]
    contents = {"made_at": made_at, "schema": schema, "objects": len(sizes), "bytes": sum(sizes)}
    (target / CONTENTS).write_text(json.dumps(contents) + "\n")
    return contents


def restore_backup(settings: Settings, source: Path) -> dict[str, Any]:
    """Restore a backup into the empty database and store of the settings; return its description.

    The service must not be running. A job that was under way resumes from its last snapshot once a
    worker runs.

    Raises:
        BackupNotPossible: `source` is not a complete backup, its database is damaged, it has a link or
            anything else that no backup has. Or a database or an object exists already.
    """
    if not (source / CONTENTS).is_file():
        raise BackupNotPossible(
            f"{source} is no backup: it has no {CONTENTS}, which is written last."
        )
    _require_safe_backup(source)
    contents: dict[str, Any] = json.loads((source / CONTENTS).read_text())
    copy = FolderStore(source.absolute() / STORE)
    database = _open_sqlite_database(source / DATABASE)
    try:
        named_objects = list(iterate_referenced_objects(database))
    except ValueError as error:
        raise BackupNotPossible(
            f"{source} names an object outside of a store ({error}): nothing was restored."
        ) from None
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error))
        raise BackupNotPossible(
            f"The database of {source} is none of this service: {reason}."
        ) from None
    finally:
        database.close()
    for item in named_objects:
        # A key such as ../x would write outside of the store.
        if not _is_store_object_key(item.key):
            raise BackupNotPossible(
                f"{source} names the object {item.key[:80]!r}, which is outside of a store: "
                f"nothing was restored."
            )
    missing = find_objects_missing_in_store(named_objects, copy)
    if missing:
        raise BackupNotPossible(
            f"{source} lacks {len(missing)} objects, such as the {missing[0].by}."
        )
    file = _require_sqlite_database_path(settings)
    store = open_object_store(settings)
    store.create_folder_or_bucket()
    if file.exists():
        raise BackupNotPossible(f"There is a database {file}: a restore wants an empty place.")
    # An object of another service could have a key of the backup, and other bytes.
    if next(iter(store.list("")), None) is not None:
        raise BackupNotPossible(
            f"There are objects in {settings.resolved_store_url}: a restore wants an empty place."
        )
    copy_missing_store_objects(copy, store)
    file.parent.mkdir(parents=True, exist_ok=True)
    for name in KEYS:
        key = settings.data_dir / name
        if (source / name).is_file() and not key.exists():
            key.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, key)
    # Copied last, because without it there is no service to start.
    copy_sqlite_database(source / DATABASE, file)
    return contents


def _require_safe_backup(source: Path) -> None:
    """Reject a backup with links, unknown files or a damaged database, which may be hostile.

    Somebody else may have written the backup.

    Raises:
        BackupNotPossible: the backup has a link, something other than files and folders, or a name that
            no object has. Or its database is damaged, or has a trigger or view, which the service
            never makes.
    """
    for folder, folders, files in os.walk(source):
        for path in (Path(folder) / name for name in (*folders, *files)):
            # `stat` would follow the links that are to be refused.
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                raise BackupNotPossible(
                    f"{path} is a link to {str(path.readlink())[:200]!r}, and a backup holds none: "
                    "it would bring in what lies outside. Restore from a copy of the backup as it "
                    "was made."
                )
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                raise BackupNotPossible(
                    f"{path} is neither a file nor a folder: a backup holds nothing else."
                )
            key = (
                path.relative_to(source / STORE).as_posix()
                if path.is_relative_to(source / STORE)
                else None
            )
            if (
                key
                and stat.S_ISREG(mode)
                and not key.startswith(".")
                and not _is_store_object_key(key)
            ):
                raise BackupNotPossible(
                    f"{str(path)!r} has a name that no object has: nothing was restored."
                )
    damage = sqlite_damage.find_sqlite_damage_by_quick_check(source / DATABASE)
    if damage:
        raise BackupNotPossible(
            f"The database of {source} is damaged: {'; '.join(damage)}. Restore another backup."
        )
    # A trigger would run SQL of the backup's author in the service. `closing`, because the `with`
    # of a connection only ends its transaction.
    with closing(sqlite3.connect(source / DATABASE)) as connection:
        unexpected = connection.execute(
            "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"
        ).fetchone()
    if unexpected is not None:
        raise BackupNotPossible(
            f"The database of {source} holds a {unexpected[0]}, {unexpected[1]!r:.80}: the service "
            f"makes none."
        )


def _is_store_object_key(key: str) -> bool:
    try:
        check_object_key(key)
    except ValueError:
        return False
    return True


def copy_missing_store_objects(source: ObjectStorage, target: ObjectStorage) -> int:
    """Copy the stored objects that `target` lacks; return their number.

    Objects that are deleted meanwhile are left out.
    """
    sizes = {info.key: info.size for info in target.list("")}
    copied = 0
    for info in source.list(""):
        # Marks of the sweep describe the old store; the new one is swept from the beginning.
        if sizes.get(info.key) != info.size and not info.key.startswith("sweeps/"):
            copied += _copy_object_between_stores(source, target, info)
    return copied


def find_objects_missing_in_store(
    named_objects: Iterable[ReferencedObject], store: ObjectStorage
) -> list[ReferencedObject]:
    """Return the objects that the database names and the store lacks or has in another size."""
    sizes = {info.key: info.size for info in store.list("")}
    return [
        one
        for one in named_objects
        if one.key not in sizes or one.size not in (None, sizes[one.key])
    ]


def _copy_object_between_stores(
    source: ObjectStorage, target: ObjectStorage, info: ObjectInfo
) -> int:
    with tempfile.NamedTemporaryFile(
        prefix="perennial-copy-", dir=_find_temporary_folder_on_store_disk(target)
    ) as file:
        try:
            for chunk in source.read(info.key):
                file.write(chunk)
        # Deleted since it was listed; `find_objects_missing_in_store` reports it if the database
        # still names it.
        except StoredObjectDamaged:
            return 0
        file.flush()
        target.put_file(info.key, Path(file.name))
    return 1


def _find_temporary_folder_on_store_disk(store: ObjectStorage) -> Path | None:
    """Return a temporary folder on the store's own disk; None if the store is not a folder."""
    inner = store.inner if isinstance(store, TimedStore) else store
    return inner.root / ".incoming" if isinstance(inner, FolderStore) else None


def _delete_unreferenced_objects(
    named_objects: Iterable[ReferencedObject], store: ObjectStorage
) -> None:
    """Delete the objects that the copied database does not name.

    They were deleted, or not yet accepted, when it was copied.
    """
    keys = {one.key for one in named_objects}
    for info in list(store.list("")):
        if info.key not in keys:
            store.delete(info.key)


def _open_sqlite_database(file: Path) -> Database:
    return Database(f"sqlite:///{file.absolute()}")


def _require_sqlite_database_path(settings: Settings) -> Path:
    url = make_url(settings.resolved_database_url)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise BackupNotPossible(
            "This copies SQLite; for PostgreSQL use pg_dump and a mirror of the bucket."
        )
    return Path(url.database)
