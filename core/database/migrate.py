"""Schema migrations: bring the schema up to date, or report that it is not.

The embedded launcher calls `upgrade_schema`. At scale, an operator runs `perennial migrate` once,
and every process calls `require_current_schema` before it serves. Two concurrent starts are safe:
the second waits for the lock of the first and then finds nothing to do. Alembic is loaded only to
migrate, because comparing two revisions does not need its 11 MB in every process.

Before version 0.1.0 there were 35 migrations, 0001 to 0035. `0001_initial` makes the schema that
they made. A database of the last one only gets the new name; an older one has to be upgraded by the
last commit that had them.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from core.database.copies import COPY_PREFIX, copy_database_before_upgrade
from core.database.session import Database
from core.errors import SchemaOutdated

_LOCK = 0x7065_7265_6E6E  # an arbitrary constant of ours: "perenn"
_FOLDER = Path(__file__).parents[2] / "migrations"
INITIAL = "0001_initial"
FORMER = tuple(f"{number:04}" for number in range(1, 36))
"""Revisions before version 0.1.0; the newest one has the schema of `INITIAL`."""
FORMER_COMMIT = "bbaca810"
"""Last commit with the migrations of these revisions."""
COPIED = "The database was copied to {} before its schema changed."
_REVISION = re.compile(
    r'^(revision|down_revision)\b[^=\n]*=\s*(?:["\']([^"\']+)["\']|None)', re.MULTILINE
)


@cache
def _read_migration_revisions() -> dict[str, str | None]:
    """Return every Alembic revision in the folder with its predecessor; the files are read as text."""
    predecessors: dict[str, str | None] = {}
    for path in (_FOLDER / "versions").glob("*.py"):
        fields = {name: value or None for name, value in _REVISION.findall(path.read_text())}
        if fields.get("revision"):
            predecessors[str(fields["revision"])] = fields.get("down_revision")
    return predecessors


@cache
def get_newest_schema_revision() -> str:
    """Return the newest schema revision, which this code needs.

    Raises:
        RuntimeError: the folder has no single newest migration.
    """
    revisions = _read_migration_revisions()
    heads = sorted(set(revisions) - set(revisions.values()))
    if len(heads) != 1:
        raise RuntimeError(f"{_FOLDER} must have one newest migration, not {len(heads)}.")
    return heads[0]


def read_schema_revision(db: Database) -> str | None:
    """Return the schema revision of a database, or None for an empty one."""
    with db.engine.connect() as connection:
        return _read_schema_revision_in_connection(connection)


def _read_schema_revision_in_connection(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.execute(
        text("SELECT version_num FROM alembic_version")
    ).scalar_one_or_none()
    return None if revision is None else str(revision)


@contextmanager
def begin_migration_transaction(db: Database) -> Iterator[Connection]:
    """Open a transaction that excludes a second migration of the database at the same time."""
    with db.engine.connect() as connection:
        if db.dialect == "sqlite":
            connection.execution_options(perennial_begin="IMMEDIATE")
        with ExitStack() as stack:
            if db.dialect == "postgresql":
                from core.database.connection_timeouts import (
                    lift_database_time_limit,  # psycopg is not needed for SQLite
                )

                stack.enter_context(lift_database_time_limit(connection))
            stack.enter_context(connection.begin())
            if db.dialect == "postgresql":
                # A migration of a large table takes longer than any other statement may.
                connection.execute(text("SELECT set_config('statement_timeout', '0', true)"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield connection


def upgrade_schema(db: Database, *, backups: Path | None = None) -> Path | None:
    """Bring the database schema up to date; does nothing if it is.

    Args:
        backups: folder for a copy of a database whose schema will change; None: make no copy.

    Returns:
        The copy, if one was made.

    Raises:
        SchemaOutdated: this code cannot upgrade the schema, because it is too old or newer.
        ProcessCannotStart: the copy failed, so nothing was changed.
    """
    from alembic import command
    from alembic.config import Config

    with begin_migration_transaction(db) as connection:
        copy = prepare_schema_upgrade(connection, backups)
        config = Config()
        # Alembic interpolates `%` in its options, and a folder's name may contain one.
        config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        return copy


def prepare_schema_upgrade(connection: Connection, backups: Path | None) -> Path | None:
    """Check a database and copy it before Alembic upgrades its schema; rename a former revision.

    The arguments, the result and the exceptions are those of `upgrade_schema`. The connection has
    begun an exclusive transaction, so that nothing is written between copy and upgrade.
    """
    revision = _read_schema_revision_in_connection(connection)
    if revision in (None, get_newest_schema_revision()):
        return None
    _require_upgradable_schema(revision)
    name = f"{COPY_PREFIX}{get_newest_schema_revision()}"
    copy = backups and copy_database_before_upgrade(connection.engine.url, backups, name)
    if revision == FORMER[-1]:
        # Nothing else differs, which `tests/migrations/test_former_data.py` shows.
        connection.execute(text("UPDATE alembic_version SET version_num = :new"), {"new": INITIAL})
    return copy


def require_current_schema(db: Database) -> None:
    """Check that the database schema is the one that this code needs.

    Raises:
        SchemaOutdated: the schema is older, missing, or of a newer release.
    """
    revision, needed = read_schema_revision(db), get_newest_schema_revision()
    if revision == needed:
        return
    if revision is not None:
        _require_upgradable_schema(revision)
    raise SchemaOutdated(
        f"The database schema is {revision or 'empty'}, this code needs {needed}: "
        "run `perennial migrate` first."
    )


def _require_upgradable_schema(revision: str | None) -> None:
    """Check that this code can upgrade a database schema of the given revision.

    Raises:
        SchemaOutdated: the schema is too old, or of a newer release.
    """
    if revision in FORMER[:-1]:
        raise SchemaOutdated(
            f"The database schema {revision} is older than commit {FORMER_COMMIT}, and this code "
            f"upgrades only the schema of that commit ({FORMER[-1]}) or a later one. Check out "
            f"{FORMER_COMMIT}, run its `perennial migrate`, and then this one's."
        )
    # A revision that this code does not know can only come from a later release.
    if revision != FORMER[-1] and revision not in _read_migration_revisions():
        raise SchemaOutdated(
            f"The database schema {revision} is newer than this code ({get_newest_schema_revision()}): "
            "run the release that made it, or a later one, and its `perennial migrate`."
        )
