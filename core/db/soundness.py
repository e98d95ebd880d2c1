"""Damage of a SQLite file, told in words: which table, and what to do.

A disk or a copy that went wrong leaves a file that opens and answers until a damaged page is read. `read_rows` reads a
row of each table, which takes no time and finds what no service could start with; `find_damage` reads the whole file.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

MOST = 5
"""Findings that are told."""
_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
DAMAGED = "The service's database is damaged here. Tell its operator: GET /readyz says what, and what to do."
REMEDY = (
    "Stop the service, keep the file, and restore the last backup into an empty data directory: perennial restore"
    " FOLDER. Without a backup, `sqlite3 FILE .recover` saves what can be read."
)


def is_damage(error: BaseException) -> bool:
    """Return whether an error, or the one that it wraps, says that a SQLite file is damaged or is none."""
    original = getattr(error, "orig", error)
    return (getattr(original, "sqlite_errorcode", 0) & 0xFF) in _CODES


def told(file: Path, found: list[str]) -> str:
    """One sentence of what was found, and what to do."""
    return f"The database {file} is damaged: {'; '.join(found)}. {REMEDY}"


def read_rows(file: Path) -> list[str]:
    """Read a row of each table; what is damaged there. Empty: nothing, or there is no file yet."""
    if not file.exists() or not file.stat().st_size:
        return []
    found: list[str] = []
    try:
        with _opened(file) as connection:
            query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            for (name,) in connection.execute(query).fetchall():
                quoted = name.replace('"', '""')
                try:
                    connection.execute(f'SELECT * FROM "{quoted}" LIMIT 1').fetchall()  # noqa: S608 - quoted
                except sqlite3.DatabaseError as error:
                    if not is_damage(error):
                        raise
                    found.append(f"table {name}: {error}")
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return [str(error)]
    return found[:MOST]


def find_damage(file: Path) -> list[str]:
    """Read the whole file by `PRAGMA quick_check`; what is damaged, by table. Takes about a second per GB or two.

    Raises:
        sqlite3.Error: it cannot be read for another reason.
    """
    try:
        with _opened(file) as connection:
            found = _checked(connection, "")
            if not found:
                return []
            names = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            by_table = [
                f"table {name}: {line}" for (name,) in names for line in _checked(connection, name)[:1]
            ]
            return (by_table or found)[:MOST]
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return read_rows(file) or [str(error)]


def _checked(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return what `quick_check` finds in a table with its indices, or in the whole file."""
    what = '"' + table.replace('"', '""') + '"' if table else str(MOST)
    try:
        lines = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({what})")]
    except sqlite3.DatabaseError as error:
        if not is_damage(error) or not table:
            raise
        return [str(error)]
    if lines == ["ok"]:
        return []
    return [line for line in "\n".join(lines).splitlines() if not line.startswith("***")] or lines


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
        connection.execute("PRAGMA busy_timeout=5000")
        yield connection
