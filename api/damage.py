"""Damage in the database file, checked once when the service starts."""

import sqlite3
import threading
from pathlib import Path

import structlog

from core.database import sqlite_damage

log = structlog.get_logger(__name__)


class DatabaseDamageMonitor:
    """Watches the SQLite database file for damage, which `/readyz` then reports.

    Args:
        file: path of a SQLite database; None for other databases, which check themselves.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.found: list[str] = []

    def start_database_check(self) -> threading.Thread:
        """Start a daemon thread that reads and checks the whole database file, and return the
        thread.
        """
        # A large file takes long to read, and the service is useful meanwhile.
        thread = threading.Thread(target=self._check_database_file, name="soundness", daemon=True)
        thread.start()
        return thread

    def record_damage_error(self, error: BaseException) -> None:
        """Record a database error that shows damage of the file."""
        self._record_found_damage([str(getattr(error, "orig", error))])

    def describe_database_damage(self) -> str:
        """Return a sentence about the damage found in the database file, and what to do about it."""
        return sqlite_damage.describe_database_damage(self._file or Path(), self.found)

    def _check_database_file(self) -> None:
        if self._file is None or not self._file.exists():
            return
        try:
            damage = sqlite_damage.find_sqlite_damage_by_quick_check(self._file)
        # A file that cannot be read now is not thereby damaged.
        except sqlite3.Error as error:
            log.warning("the database's file could not be read whole", error=str(error))
            return
        if damage:
            self._record_found_damage(damage)

    def _record_found_damage(self, problems: list[str]) -> None:
        self.found = problems
        log.error("database damaged", detail=self.describe_database_damage())
