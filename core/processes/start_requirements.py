"""Requirements of a process at its start, each with an error that says what is missing.

Without these checks, the service would answer 503 for ever or end in a traceback.
"""

import errno
import os
import secrets
import sqlite3
from pathlib import Path

from sqlalchemy.engine import make_url

from core.database import sqlite_damage
from core.errors import ProcessCannotStart
from core.files import descriptors, disk_reserve
from core.files.permissions import make_data_and_new_files_private
from core.settings import Settings

LEAST_CONNECTIONS = 16
"""Least number of connections: an API process with fewer would reject honest clients."""


def prepare_data_directory_and_check_startup(settings: Settings) -> str | None:
    """Check file descriptors, data directory and database file before a process of the service
    starts.

    Returns:
        Advice for a person if the data directory is open to others, else None.

    Raises:
        ProcessCannotStart: the process cannot work; the detail says why, and what to do.
    """
    increase_and_require_descriptor_limit(settings)
    advice = _make_data_and_new_files_private(settings.data_dir)
    # Starting takes room as well, and only a started service can delete.
    disk_reserve.remove_disk_reserve_if_disk_full(settings.data_dir)
    _require_writable_directory(settings.data_dir)
    require_sound_sqlite_file(settings)
    return advice


def increase_and_require_descriptor_limit(settings: Settings) -> None:
    """Increase the limit of open files; raise ProcessCannotStart if it is still too low."""
    # Two for each connection, as `max_connections` counts them.
    needed = settings.reserved_descriptors + 2 * LEAST_CONNECTIONS
    allowed = descriptors.increase_file_descriptor_limit(needed)
    if allowed < needed:
        raise ProcessCannotStart(
            f"This process may open {allowed} files, and needs {needed} at least (4096 are usual). "
            "Raise the limit: `ulimit -n 4096` in the shell that starts it, LimitNOFILE=4096 in a "
            "unit of systemd, --ulimit nofile=4096 for a container."
        )


def find_sqlite_file_of_url(settings: Settings) -> Path | None:
    """Return the file of a SQLite database URL, or None for any other database."""
    url = make_url(settings.resolved_database_url)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def require_sound_sqlite_file(settings: Settings) -> None:
    """Raise ProcessCannotStart if the SQLite file is no database or a table's first row cannot be read."""
    file = find_sqlite_file_of_url(settings)
    try:
        damage = (
            [] if file is None else sqlite_damage.find_sqlite_tables_with_unreadable_start(file)
        )
    except sqlite3.Error:  # a full disk may prevent even reading; the first writer reports that
        return
    if file is not None and damage:
        raise ProcessCannotStart(sqlite_damage.describe_database_damage(file, damage))


def _make_data_and_new_files_private(data_dir: Path) -> str | None:
    try:
        return make_data_and_new_files_private(data_dir)
    except OSError as error:
        raise _build_unwritable_directory_error(data_dir, error) from error


def _require_writable_directory(data_dir: Path) -> None:
    # A random name, because several processes may start at once.
    probe = data_dir / f".writable-{secrets.token_hex(4)}"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        probe.unlink()
    except OSError as error:
        # A full disk can still serve and delete.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise _build_unwritable_directory_error(data_dir, error) from error


def _build_unwritable_directory_error(data_dir: Path, error: OSError) -> ProcessCannotStart:
    return ProcessCannotStart(
        f"The data directory {data_dir.absolute()} cannot be written: {error.strerror}. Name "
        "another in PERENNIAL_DATA_DIR (perennial serve --data-dir FOLDER), or let this user write "
        "there: mount it for writing, or chown it."
    )
