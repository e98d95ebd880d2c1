"""Damage of the database's file, looked for once while the service begins to serve."""

import sqlite3
import threading
from pathlib import Path

import structlog

from core.db import soundness

log = structlog.get_logger(__name__)


class Damage:
    """Damage found in the database's file, for `/readyz`.

    Args:
        file: of a SQLite database; None: the database is another, which looks after itself.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.found: list[str] = []

    def look(self) -> threading.Thread:
        """Begin to read the whole file, in a thread that ends by itself."""
        thread = threading.Thread(target=self._look, name="soundness", daemon=True)
        thread.start()
        return thread

    def add(self, error: BaseException) -> None:
        """Remember what a read met."""
        self._tell([str(getattr(error, "orig", error))])

    def told(self) -> str:
        """One sentence of what was found, and what to do."""
        return soundness.told(self._file or Path(), self.found)

    def _look(self) -> None:
        if self._file is None or not self._file.exists():
            return
        try:
            found = soundness.find_damage(self._file)
        except sqlite3.Error as error:
            log.warning("the database's file could not be read whole", error=str(error))
            return
        if found:
            self._tell(found)

    def _tell(self, found: list[str]) -> None:
        self.found = found
        log.error("database damaged", detail=self.told())
