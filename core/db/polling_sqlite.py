"""Polled reads of SQLite: one read-only connection on the event loop itself, since a read takes
some ten microseconds.
"""

import json
import sqlite3
from typing import Any

from core.db import soundness
from core.errors import DatabaseCorrupt, Unavailable

# in WAL mode, readers do not wait for writers; only the last step of a checkpoint can block
_BUSY_MS = 250


class SqliteReader:
    """One read-only connection; its statement cache keeps the statements prepared."""

    mark = "?"
    stops = "t.stops = 1"  # in the same form as in the partial index

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    async def fetch(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return all rows of a statement.

        Raises:
            DatabaseCorrupt: the file is damaged.
            Unavailable: the database does not respond.
        """
        try:
            if self._connection is None:
                self._connection = self._open_connection()
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            await self.close()
            if soundness.is_damage(error):
                raise DatabaseCorrupt(soundness.DAMAGED) from error
            raise Unavailable("The database does not answer.", retry_after_s=1) from error

    def _open_connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only=ON")
        return connection

    async def close(self) -> None:
        """Close the connection; the next read opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def decode_json(self, value: str | None) -> Any:
        """Return the content of a JSON column."""
        return None if value is None else json.loads(value)
