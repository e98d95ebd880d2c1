"""Access to the database: engines, transactions and the database's own clock.

SQLite runs in WAL mode with the driver's own transactions off. A writer opens with BEGIN IMMEDIATE,
so two writers queue up instead of failing half-way. Errors do not quote a statement's values,
because they end up in logs and in the errors of jobs that owners read.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Engine,
    Float,
    create_engine,
    event,
    literal_column,
    select,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from core.database import owner_events

BUSY_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_S = 3
CACHE_KIB = 16 << 10
"""Maximum page cache of a SQLite connection in KiB; figures of 1,000 versions occupy 12 MiB."""
STATEMENT_S = 30.0
REQUEST_STATEMENT_S = 5.0
"""Longest statement in seconds while a client waits.

Together with failed attempts to connect and the error itself, the response comes within 15 s.
"""
SILENCE_S = 1.0
"""Seconds beyond the statement limit after which a silent server counts as gone."""

_DISK_FULL = "53100"

CLOCK = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "extract(epoch from clock_timestamp())",
}
"""SQL for seconds since 1970 by the database's clock, by dialect.

`clock_timestamp()` advances inside a transaction, `now()` does not. SQLite 3.40 has no
`unixepoch('subsec')`.
"""


class Database:
    """SQLAlchemy engine of one database, and its reading and writing transactions.

    Args:
        url: `sqlite:///FILE` or `postgresql+psycopg://…`.
        pool: maximum number of connections kept open (PostgreSQL).
        statement_s: longest time of a statement in seconds (PostgreSQL). If the server stays silent
            much longer, the connection is closed.

    Raises:
        ValueError: the database is neither SQLite nor PostgreSQL, or SQLite's is not a file.
    """

    def __init__(self, url: str, *, pool: int = 10, statement_s: float = STATEMENT_S) -> None:
        parsed = make_url(url)
        self.url = url
        self.dialect = parsed.get_backend_name()
        if self.dialect == "sqlite":
            # In memory, each connection would have a database of its own.
            if not parsed.database or parsed.database == ":memory:":
                raise ValueError("Perennial's SQLite database must be a file.")
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            self.engine: Engine = create_engine(
                url, hide_parameters=True, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}
            )
            _configure_sqlite(self.engine)
        elif self.dialect == "postgresql":
            self.engine = create_engine(
                url,
                hide_parameters=True,
                pool_size=pool,
                max_overflow=pool,
                # A restarted server leaves dead connections in the pool.
                pool_pre_ping=True,
                pool_timeout=CONNECT_TIMEOUT_S,
                connect_args={
                    "connect_timeout": CONNECT_TIMEOUT_S,
                    "options": f"-c statement_timeout={round(statement_s * 1000)}",
                },
            )
            _limit_postgresql_client_waits(self.engine, statement_s + SILENCE_S)
        else:
            raise ValueError(
                f"Unknown database {self.dialect!r}: use sqlite or postgresql+psycopg."
            )

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a database transaction for writing: committed at the end, rolled back on any
        exception.
        """
        # Rows remain readable after the commit, since callers build responses from them.
        with Session(self.engine, expire_on_commit=False) as session:
            if self.dialect == "sqlite":
                session.connection(execution_options={"perennial_begin": "IMMEDIATE"})
            yield session  # leaving the block by an exception closes the session, which rolls back
            owner_events.write_collected_owner_and_webhook_events(session)
            session.commit()

    @contextmanager
    def read(self, *, one_statement: bool = False) -> Iterator[Session]:
        """Open a database transaction for reading, which is always rolled back.

        Args:
            one_statement: the caller reads everything with one statement, which sees one state by
                itself; SQLite is then spared a transaction.
        """
        with Session(self.engine, expire_on_commit=False, autoflush=False) as session:
            if one_statement and self.dialect == "sqlite":
                session.connection(execution_options={"perennial_begin": None})
            yield session

    def now(self, session: Session) -> float:
        """Return the current time by the database's clock, in seconds since 1970."""
        return float(session.execute(select(build_database_time_expression(session))).scalar_one())

    def check_connection(self) -> None:
        """Check that the database responds.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: it does not.
        """
        with self.engine.connect() as connection:
            connection.execute(text("SELECT 1"))

    def check_row_readable(self) -> None:
        """Check that the database responds and that a row can be read.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: it does not, or the row cannot be read.
        """
        with self.engine.connect() as connection:
            connection.execute(text("SELECT version_num FROM alembic_version")).all()

    def close(self) -> None:
        """Close all pooled database connections."""
        self.engine.dispose()


def build_database_time_expression(session: Session) -> ColumnElement[float]:
    """Return the SQL expression for seconds since 1970 by the database's clock."""
    return literal_column(CLOCK[session.get_bind().dialect.name], Float)


def is_database_outage(error: BaseException) -> bool:
    """Return True if a database error means that the database is not reachable now, and not that a
    statement is wrong.
    """
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    # SQLite raises the same class for a missing table or column as for a locked or unreadable file.
    wrong = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return type(error).__name__ in {"OperationalError", "InterfaceError"} and not wrong


def is_database_full(error: BaseException) -> bool:
    """Return True if a database error means that its disk is full."""
    original = getattr(error, "orig", None)
    return (
        getattr(original, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        or getattr(original, "sqlstate", None) == _DISK_FULL
    )


def _limit_postgresql_client_waits(engine: Engine, seconds: float) -> None:
    """Limit the time of every wait for PostgreSQL, since its client library waits without limit."""
    from core.database.connection_timeouts import (
        TimeLimitedPostgresqlConnection,
    )  # psycopg is not needed for SQLite

    @event.listens_for(engine, "do_connect")
    def connect_with_time_limit(_dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        connection = TimeLimitedPostgresqlConnection.connect(*arguments, **options)
        connection.wait_limit_s = seconds
        return connection


def _enable_wal_mode(cursor: sqlite3.Cursor) -> None:
    """Switch a new SQLite file to write-ahead logging (WAL).

    SQLite does not wait if two connections do so at the same moment: one gets a "busy" error, so
    retry.
    """
    give_up = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
        time.sleep(0.01)


def _configure_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def set_pragmas(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # turns off Python's own BEGINs; ours follow below
        cursor = connection.cursor()
        _enable_wal_mode(cursor)
        # in WAL mode, a crash of the machine loses at most the last transactions
        cursor.execute("PRAGMA synchronous=NORMAL")
        # SQLite ignores foreign keys unless each connection turns them on.
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        cursor.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Any) -> None:
        kind = connection.get_execution_options().get("perennial_begin", "DEFERRED")
        if kind is not None:
            connection.exec_driver_sql(f"BEGIN {kind}")
