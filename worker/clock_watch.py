"""Sees when the database's clock is put forward or back, by a monotonic one beside it.

A clock that was put forward by a year makes everything look old. It may be right now, and have been wrong before; so
nothing is removed for an hour, in which a person can read the warning and put it right. A clock that was put back
leaves leases in a far future, which are brought near (`core.work.clock_jumps`).
"""

import threading
import time

import structlog

from core.db.session import Database
from core.work import clock_jumps

log = structlog.get_logger(__name__)

CALM_S = 3600.0
"""After a jump nothing is removed for so long."""


class ClockWatch:
    """The watch of one worker; `look` every few seconds. May be asked from several threads.

    Args:
        lease_s: of the workers' claims.
    """

    def __init__(self, db: Database, lease_s: float) -> None:
        self._db = db
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._last: tuple[float, float] | None = None
        """Times of the database's clock and of the monotonic one at the last look."""
        self._calm_until = -1.0

    def look(self) -> None:
        """Compare the clocks; at the first look only bring near what lies too far ahead.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        with self._db.read() as session:
            there, here = self._db.now(session), time.monotonic()
        with self._lock:
            moved_s = 0.0 if self._last is None else (there - self._last[0]) - (here - self._last[1])
            if self._last is None or moved_s < -clock_jumps.JUMP_S:
                self._bring_near()
            self._last = there, here
            if abs(moved_s) > clock_jumps.JUMP_S:
                self._calm_until = here + CALM_S
                log.warning(
                    "the clock of the database was put forward or back: nothing is removed for an hour; if it is wrong"
                    " now, put it right",
                    days=round(moved_s / 86_400, 2),
                )

    def is_calm(self) -> bool:
        """Return whether what is old may be removed: the clock has not jumped within the last hour."""
        try:
            self.look()
        finally:
            with self._lock:
                calm = time.monotonic() >= self._calm_until
        return calm

    def _bring_near(self) -> None:
        with self._db.write() as session:
            found = clock_jumps.bring_near(session, self._db.now(session), self._lease_s)
        if found:
            log.warning("times in a far future were brought near: the clock was put back", rows=found)
