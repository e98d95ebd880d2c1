"""Copies of a whole database, made before its schema changes and by backups."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import suppress
from pathlib import Path

from sqlalchemy.engine import URL

from core.errors import ProcessCannotStart

COPY_PREFIX = "before-"
"""Beginning of a copy's name, which the revision follows that the upgrade leads to."""
KEPT_COPIES = 3


def copy_database_before_upgrade(url: URL, folder: Path, name: str) -> Path:
    """Copy a database into a folder before an upgrade, and return the file: a SQLite database, or a
    PostgreSQL dump.

    An earlier copy of the same name is replaced once the new one is complete. Of copies before other
    changes, the newest remain, `KEPT_COPIES` with this one.

    Raises:
        ProcessCannotStart: the copy failed; PostgreSQL needs `pg_dump` on the path.
    """
    is_sqlite = url.get_backend_name() == "sqlite"
    target = folder.absolute() / f"{name}.{'db' if is_sqlite else 'dump'}"
    part = target.with_name(f"{target.name}.part")
    try:
        # A copy has all that the database has, so nobody else may read it.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_sqlite:
            copy_sqlite_database(Path(str(url.database)), part)
        else:
            _dump_postgresql(url, part)
        # Only a complete copy gets the name, since an interrupted one could not be restored.
        part.replace(target)
        _remove_old_database_copies(target)
    except (sqlite3.Error, OSError, subprocess.CalledProcessError) as error:
        with suppress(OSError):
            part.unlink()
        output = error.stderr if isinstance(error, subprocess.CalledProcessError) else None
        reason = (output or str(error)).strip().splitlines()[-1]
        raise ProcessCannotStart(
            f"The database cannot be copied to {target} before its schema changes: {reason}. "
            "Remove the cause, or back up the database yourself and run `perennial migrate "
            "--no-backup`."
        ) from error
    return target


def _remove_old_database_copies(newest: Path) -> None:
    """Remove copies of the database beyond the newest `KEPT_COPIES`, of which `newest` is one."""
    other_copies = [
        path
        for path in newest.parent.glob(f"{COPY_PREFIX}*")
        if path.suffix == newest.suffix and path != newest
    ]
    other_copies.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in other_copies[KEPT_COPIES - 1 :]:
        path.unlink()


def copy_sqlite_database(source: Path, target: Path) -> None:
    """Make a consistent copy of a SQLite database by its own backup, even while others write.

    The copy has no write-ahead log beside it.
    """
    # A write-ahead log of an older copy would be applied to the new file.
    for name in (
        target,
        target.with_name(f"{target.name}-wal"),
        target.with_name(f"{target.name}-shm"),
    ):
        name.unlink(missing_ok=True)
    source_connection, target_connection = (
        sqlite3.connect(source, timeout=30),
        sqlite3.connect(target),
    )
    try:
        # All pages in one step, which is one reading transaction.
        source_connection.backup(target_connection)
        target_connection.execute("PRAGMA journal_mode=DELETE")
    finally:
        source_connection.close()
        target_connection.close()
    target.chmod(0o600)


def _dump_postgresql(url: URL, target: Path) -> None:
    """Dump a PostgreSQL database with `pg_dump`, in the format that `pg_restore` reads.

    Raises:
        FileNotFoundError: `pg_dump` is not installed.
        subprocess.CalledProcessError: it failed, for example because the server is newer.
    """
    program = shutil.which("pg_dump")
    if program is None:
        raise FileNotFoundError("`pg_dump` is not installed")
    address = URL.create(
        "postgresql", url.username, None, url.host, url.port, url.database, url.query
    )
    # Other users of the machine can read arguments, but not the environment.
    password = {} if url.password is None else {"PGPASSWORD": str(url.password)}
    target.touch(mode=0o600)
    subprocess.run(
        [program, "--no-password", "--format=custom", f"--file={target}", str(address)],
        env={**os.environ, **password},
        check=True,
        capture_output=True,
        text=True,
    )
