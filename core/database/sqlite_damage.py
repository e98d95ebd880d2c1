"""Detection of damage in a SQLite file, with the damaged tables and the remedy in words.

A failing disk or a bad copy can leave a file that opens and works until a damaged page is read.
`find_sqlite_tables_with_unreadable_start` reads a row of each table, which takes no time and finds damage with which no
service could start; `find_sqlite_damage_by_quick_check` reads the whole file.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

MOST = 5
"""Maximum number of findings that are reported."""
_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
DAMAGED = (
    "The service's database is damaged here. Tell its operator: GET /readyz says what, and "
    "what to do."
)
REMEDY = (
    "Stop the service, keep the file, and restore the last backup into an empty data directory: "
    "perennial restore FOLDER. Without a backup, `sqlite3 FILE .recover` saves what can be read."
)


def is_sqlite_damage_error(error: BaseException) -> bool:
    """Return True if an error, or the one it wraps, means that a SQLite file is damaged."""
    original = getattr(error, "orig", error)
    # The low byte is the primary code; the rest distinguishes variants of it.
    return (getattr(original, "sqlite_errorcode", 0) & 0xFF) in _CODES


def describe_database_damage(file: Path, findings: list[str]) -> str:
    """Return a sentence about the damage found in a database file, and what to do."""
    return f"The database {file} is damaged: {'; '.join(findings)}. {REMEDY}"


def find_sqlite_tables_with_unreadable_start(file: Path) -> list[str]:
    """Find damaged tables of a SQLite file by reading the first row of each.

    It is empty if there is none, or no file yet.

    Raises:
        sqlite3.Error: the file cannot be read for another reason.
    """
    if not file.exists() or not file.stat().st_size:
        return []
    findings: list[str] = []
    try:
        with _open_sqlite_read_only(file) as connection:
            query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            for (name,) in connection.execute(query).fetchall():
                quoted = name.replace('"', '""')
                try:
                    connection.execute(f'SELECT * FROM "{quoted}" LIMIT 1').fetchall()  # noqa: S608 - quoted
                except sqlite3.DatabaseError as error:
                    if not is_sqlite_damage_error(error):
                        raise
                    findings.append(f"table {name}: {error}")
    except sqlite3.DatabaseError as error:
        if not is_sqlite_damage_error(error):
            raise
        return [str(error)]
    return findings[:MOST]


def find_sqlite_damage_by_quick_check(file: Path) -> list[str]:
    """Find damage in a whole SQLite file by `PRAGMA quick_check`, and return it by table.

    This takes about a second per GB or two.

    Raises:
        sqlite3.Error: the file cannot be read for another reason.
    """
    try:
        with _open_sqlite_read_only(file) as connection:
            findings = _list_sqlite_quick_check_findings(connection, "")
            if not findings:
                return []
            names = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            by_table = [
                f"table {name}: {finding}"
                for (name,) in names
                # One for each table, so that the first table's findings do not hide the others.
                for finding in _list_sqlite_quick_check_findings(connection, name)[:1]
            ]
            return (by_table or findings)[:MOST]
    except sqlite3.DatabaseError as error:
        if not is_sqlite_damage_error(error):
            raise
        # The damage is so large that the check itself fails: at least name tables that cannot be
        # read.
        return find_sqlite_tables_with_unreadable_start(file) or [str(error)]


def _list_sqlite_quick_check_findings(connection: sqlite3.Connection, table: str) -> list[str]:
    """Run `PRAGMA quick_check` on a table with its indices, or on a whole SQLite file; return its
    findings.
    """
    argument = '"' + table.replace('"', '""') + '"' if table else str(MOST)
    try:
        results = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({argument})")]
    except sqlite3.DatabaseError as error:
        # Other errors, such as a lock, say nothing about damage.
        if not is_sqlite_damage_error(error) or not table:
            raise
        return [str(error)]
    if results == ["ok"]:
        return []
    # SQLite puts a line such as `*** in database main ***` before the findings.
    return [
        result for result in "\n".join(results).splitlines() if not result.startswith("***")
    ] or results


@contextmanager
def _open_sqlite_read_only(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file read-only."""
    # Read-only, since a damaged file must stay as it is until it has been saved.
    with closing(
        sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
    ) as connection:
        connection.execute("PRAGMA busy_timeout=5000")
        yield connection
