"""Schema migrations: bring the schema up to date, or report that it is not.

The embedded launcher calls `upgrade`. At scale, an operator runs `alembic upgrade head` once, and
every process calls `require_current` before it serves. Two concurrent starts are safe: the second
waits for the lock of the first and then finds nothing to do. Alembic is loaded only to migrate,
because comparing two revisions does not need its 11 MB in every process.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, inspect, text

from core.db.session import Database
from core.errors import SchemaOutdated

_LOCK = 0x7065_7265_6E6E  # an arbitrary constant of ours: "perenn"
_FOLDER = Path(__file__).parents[2] / "migrations"
_REVISION = re.compile(
    r'^(revision|down_revision)\b[^=\n]*=\s*(?:["\']([^"\']+)["\']|None)', re.MULTILINE
)


@cache
def _read_revisions() -> dict[str, str | None]:
    """Return every revision in the folder with its predecessor; the files are read as text."""
    predecessors: dict[str, str | None] = {}
    for path in (_FOLDER / "versions").glob("*.py"):
        fields = {name: value or None for name, value in _REVISION.findall(path.read_text())}
        if fields.get("revision"):
            predecessors[str(fields["revision"])] = fields.get("down_revision")
    return predecessors


@cache
def find_head() -> str:
    """Return the revision that this code needs.

    Raises:
        RuntimeError: the folder has no single newest migration.
    """
    revisions = _read_revisions()
    heads = sorted(set(revisions) - set(revisions.values()))
    if len(heads) != 1:
        raise RuntimeError(f"{_FOLDER} must have one newest migration, not {len(heads)}.")
    return heads[0]


def read_revision(db: Database) -> str | None:
    """Return the revision of the database, or None for an empty one."""
    with db.engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        revision = connection.execute(
            text("SELECT version_num FROM alembic_version")
        ).scalar_one_or_none()
        return None if revision is None else str(revision)


@contextmanager
def begin_exclusive(db: Database) -> Iterator[Connection]:
    """Open a transaction that excludes a second migration: BEGIN IMMEDIATE, or an advisory lock."""
    with db.engine.connect() as connection:
        if db.dialect == "sqlite":
            connection.execution_options(perennial_begin="IMMEDIATE")
        with ExitStack() as stack:
            if db.dialect == "postgresql":
                from core.db.patience import wait_without_limit  # psycopg is not needed for SQLite

                stack.enter_context(wait_without_limit(connection))
            stack.enter_context(connection.begin())
            if db.dialect == "postgresql":
                # A migration of a large table takes longer than any other statement may.
                connection.execute(text("SELECT set_config('statement_timeout', '0', true)"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield connection


def upgrade(db: Database, revision: str = "head") -> None:
    """Bring the schema up to `revision`; does nothing if it is already there."""
    _run_alembic(db, "upgrade", revision)


def downgrade(db: Database, revision: str) -> None:
    """Bring the schema back to `revision` (`base` removes every table)."""
    _run_alembic(db, "downgrade", revision)


def _run_alembic(db: Database, direction: Literal["upgrade", "downgrade"], revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    with begin_exclusive(db) as connection:
        config = Config()
        # Alembic interpolates `%` in its options, and a folder's name may contain one.
        config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
        config.attributes["connection"] = connection
        run = command.upgrade if direction == "upgrade" else command.downgrade
        run(config, revision)


def require_current(db: Database) -> None:
    """Check that the schema is the one that this code needs.

    Raises:
        SchemaOutdated: the schema is older, missing, or of a newer release.
    """
    revision, needed = read_revision(db), find_head()
    if revision == needed:
        return
    # A revision that this code does not know can only come from a later release.
    if revision is None or revision in _read_revisions():
        raise SchemaOutdated(
            f"The database schema is {revision or 'empty'}, this code needs {needed}: "
            "run `alembic upgrade head` first."
        )
    raise SchemaOutdated(
        f"The database schema {revision} is newer than this code ({needed}): "
        "run the release that made it, or a later one, and its `alembic upgrade head`."
    )
