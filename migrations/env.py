"""What Alembic runs for every command: which database, which tables, under which lock.

Called from the command line it opens the database that the settings name, copies it before an
upgrade, and makes the store's folder or bucket afterwards. Called by `core.database.migrate` it uses the
connection that it is given. One tree serves SQLite and PostgreSQL; the whole run is one transaction
on both.
"""

import os
from logging.config import fileConfig

from alembic import context
from sqlalchemy import Connection

from core.database import migrate
from core.database.session import Database
from core.database.tables import DatabaseTable
from core.errors import PerennialError
from core.files.permissions import UMASK
from core.settings import Settings
from core.storage import open_object_store


def _run_migrations(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=DatabaseTable.metadata,
        compare_type=True,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def _migrate_by_command_line() -> None:
    if context.config.config_file_name is not None:
        fileConfig(context.config.config_file_name, disable_existing_loggers=False)
    settings = Settings()
    os.umask(UMASK)  # SQLite's file and the store's folder may be made here
    db = Database(settings.resolved_database_url)
    try:
        with migrate.begin_migration_transaction(db) as connection:
            if _is_upgrade_command():
                copy = migrate.prepare_schema_upgrade(connection, settings.data_dir)
                if copy is not None:
                    print(migrate.COPIED.format(copy))
            _run_migrations(connection)
    except PerennialError as error:
        raise SystemExit(error.detail) from None
    finally:
        db.close()
    if _is_upgrade_command():
        open_object_store(settings).create_folder_or_bucket()


def _is_upgrade_command() -> bool:
    """Return True if the command line asked for `upgrade`; Alembic keeps the chosen function in
    `cmd`.
    """
    chosen = getattr(context.config.cmd_opts, "cmd", None)
    return chosen is not None and chosen[0].__name__ == "upgrade"


if context.is_offline_mode():
    raise SystemExit("Perennial's migrations need a live database: run them without --sql.")
given = context.config.attributes.get("connection")
if given is not None:
    _run_migrations(given)
else:
    _migrate_by_command_line()
