"""Connections to PostgreSQL that do not wait for ever for a silent server.

`statement_timeout` is enforced by the server itself. If its machine hangs or is cut off, nothing
arrives, and libpq waits without end. Here every wait ends, and closes the connection, because the
late response could still arrive on it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection

T = TypeVar("T")
_INTERVAL_S = 0.1


class TimeLimitedPostgresqlConnection(psycopg.Connection[Any]):
    """PostgreSQL connection whose waits raise `psycopg.OperationalError` after `wait_limit_s`
    seconds.

    There is no limit if it is None.
    """

    wait_limit_s: float | None = 30.0

    def wait(self, gen: PQGen[T], interval: float = _INTERVAL_S, timeout: float | None = None) -> T:
        """Wait as `psycopg.Connection.wait` does, but at most for the connection's own time limit."""
        try:
            return super().wait(gen, interval, self.wait_limit_s if timeout is None else timeout)
        except psycopg.OperationalError:
            _close_connection_if_statement_active(self)
            raise


class TimeLimitedAsyncPostgresqlConnection(psycopg.AsyncConnection[Any]):
    """Asynchronous PostgreSQL connection that limits the time of each wait."""

    wait_limit_s = 4.0

    async def wait(
        self, gen: PQGen[T], interval: float = _INTERVAL_S, timeout: float | None = None
    ) -> T:
        """Wait as `psycopg.AsyncConnection.wait` does, but at most for the connection's own time
        limit.
        """
        try:
            return await super().wait(
                gen, interval, self.wait_limit_s if timeout is None else timeout
            )
        except psycopg.OperationalError:
            _close_connection_if_statement_active(self)
            raise


@contextmanager
def lift_database_time_limit(connection: Connection) -> Iterator[None]:
    """Lift the time limit of database statements inside the block and its COMMIT, for a large
    migration.
    """
    raw: Any = connection.connection.driver_connection
    wait_limit_s, raw.wait_limit_s = raw.wait_limit_s, None
    try:
        yield
    finally:
        raw.wait_limit_s = wait_limit_s


def _close_connection_if_statement_active(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
) -> None:
    """Close a connection if a statement is still running, since nobody will read the response."""
    if connection.pgconn.transaction_status == TransactionStatus.ACTIVE:
        connection.pgconn.finish()
