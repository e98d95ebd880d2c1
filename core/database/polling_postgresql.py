"""Polled reads of PostgreSQL by a few asynchronous connections with prepared statements."""

import asyncio
from typing import Any

import psycopg

from core.database.connection_timeouts import TimeLimitedAsyncPostgresqlConnection
from core.errors import Unavailable


class PostgresqlPollingReader:
    """Polling queries on PostgreSQL through a few connections; a broken one is replaced."""

    mark = "%s"
    stops = "t.stops"

    def __init__(self, dsn: str, connections: int, timeout_s: float) -> None:
        self._dsn = dsn
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[psycopg.AsyncConnection[Any]] = []

    async def fetch_rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Run an SQL statement on PostgreSQL and return all rows.

        Raises:
            Unavailable: the database does not respond in time.
        """
        try:
            # The limit includes the wait for a free connection.
            async with asyncio.timeout(self._timeout_s), self._slots:
                try:
                    return await self._fetch_rows_without_retry(query, values)
                except psycopg.OperationalError:
                    # The server has restarted, so idle connections are broken too.
                    await self.close()
                    return await self._fetch_rows_without_retry(query, values)
        except (psycopg.Error, OSError, TimeoutError) as error:
            raise Unavailable("The database does not answer.", retry_after_s=1) from error

    async def _fetch_rows_without_retry(
        self, query: str, values: tuple[Any, ...]
    ) -> list[tuple[Any, ...]]:
        """Run an SQL statement on an idle or new connection, without a retry."""
        connection = self._idle.pop() if self._idle else await self._open_connection()
        try:
            cursor = await connection.execute(query.encode(), values, prepare=True)
            rows = await cursor.fetchall()
        except BaseException:  # also for a cancelled request, whose response may still arrive
            await connection.close()
            raise
        self._idle.append(connection)
        return rows

    async def _open_connection(self) -> psycopg.AsyncConnection[Any]:
        """Open a PostgreSQL connection for polling queries."""
        # It gives up on a silent server slightly before the read does, so that it is known to be
        # broken.
        connection = await TimeLimitedAsyncPostgresqlConnection.connect(
            self._dsn,
            # A single SELECT needs no transaction, whose BEGIN and end would cost two round trips.
            autocommit=True,
            # libpq takes shorter limits than two seconds for two.
            connect_timeout=max(2, int(self._timeout_s)),
            prepare_threshold=0,
        )
        connection.wait_limit_s = 0.8 * self._timeout_s
        return connection

    async def close(self) -> None:
        """Close idle PostgreSQL connections; the next read opens another."""
        while self._idle:
            await self._idle.pop().close()

    def decode_json(self, value: Any) -> Any:
        """Return a JSON column's value unchanged, since the PostgreSQL driver has decoded it."""
        return value  # psycopg has read the JSON
