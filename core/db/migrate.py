"""Brings the schema up to date, and says so where it is not.

The embedded launcher calls `upgrade`; at scale an operator runs `alembic upgrade head` once, and every
process calls `require_current` before it serves. Two starts at once are safe: the second waits for the
first one's lock and then finds nothing to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from core.db.session import Database
from core.errors import SchemaOutdated

_LOCK = 0x7065_7265_6E6E  # any constant of ours: "perenn"
_FOLDER = Path(__file__).parents[2] / "migrations"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    return config


@cache
def head() -> str:
    """The revision that this code needs."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    if revision is None:
        raise RuntimeError(f"No migration found in {_FOLDER}.")
    return revision


def current(db: Database) -> str | None:
    """The revision that the database has; None for an empty one."""
    with db.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


@contextmanager
def locked(db: Database) -> Iterator[Connection]:
    """One transaction that no second migration can enter: BEGIN IMMEDIATE, or an advisory lock."""
    with db.engine.connect() as connection:
        if db.dialect == "sqlite":
            connection.execution_options(perennial_begin="IMMEDIATE")
        with connection.begin():
            if db.dialect == "postgresql":
                connection.execute(text("SELECT set_config('statement_timeout', '0', true)"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield connection


def upgrade(db: Database, revision: str = "head") -> None:
    """Bring the schema up to `revision`; nothing happens where it is already there."""
    with locked(db) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def downgrade(db: Database, revision: str) -> None:
    """Bring the schema back to `revision` (`base` removes every table)."""
    with locked(db) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.downgrade(config, revision)


def require_current(db: Database) -> None:
    """Check that the schema is the one this code needs.

    Raises:
        SchemaOutdated: it is older, missing, or of a newer release.
    """
    found, needed = current(db), head()
    if found == needed:
        return
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found is None or found in known:
        raise SchemaOutdated(
            f"The database schema is {found or 'empty'}, this code needs {needed}: "
            "run `alembic upgrade head` first."
        )
    raise SchemaOutdated(
        f"The database schema {found} is newer than this code ({needed}): "
        "run the release that made it, or a later one, and its `alembic upgrade head`."
    )
