"""The polled reads of PostgreSQL: a few asynchronous connections with prepared statements, replaced after an outage."""

import asyncio
from typing import Any

import psycopg

from core.db.patience import PatientAsyncConnection
from core.errors import Unavailable


class PostgresqlReader:
    """A few connections, each used by one read at a time; a broken one is replaced."""

    mark = "%s"
    stops = "t.stops"

    def __init__(self, dsn: str, connections: int, timeout_s: float) -> None:
        self._dsn = dsn
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[psycopg.AsyncConnection[Any]] = []

    async def fetch(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """All rows of a statement. Raises: Unavailable."""
        try:
            async with asyncio.timeout(self._timeout_s), self._slots:
                try:
                    return await self._once(query, values)
                except psycopg.OperationalError:
                    # The server restarted: what was idle is broken too.
                    await self.close()
                    return await self._once(query, values)
        except (psycopg.Error, OSError, TimeoutError) as error:
            raise Unavailable("The database does not answer.", retry_after_s=1) from error

    async def _once(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        connection = self._idle.pop() if self._idle else await self._open()
        try:
            cursor = await connection.execute(query.encode(), values, prepare=True)
            rows = await cursor.fetchall()
        except BaseException:  # also a cancelled request: its answer may still be on the wire
            await connection.close()
            raise
        self._idle.append(connection)
        return rows

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        # One that falls silent is given up a little before the read itself: only then is it known to be broken.
        connection = await PatientAsyncConnection.connect(
            self._dsn, autocommit=True, connect_timeout=max(2, int(self._timeout_s)), prepare_threshold=0
        )
        connection.patience_s = 0.8 * self._timeout_s
        return connection

    async def close(self) -> None:
        """Close the connections that are idle; the next read opens another."""
        while self._idle:
            await self._idle.pop().close()

    def loads(self, value: Any) -> Any:
        """The content of a JSON column."""
        return value  # psycopg has read the JSON
