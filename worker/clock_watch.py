"""Detection of jumps of the database's clock, by comparison with a monotonic clock.

If the clock is set forward by a year, everything looks old. The clock may have been wrong before or
be wrong now. Nothing is therefore removed for an hour, in which a person can read the warning and
correct the clock. If the clock is set back, leases lie in the far future; these are corrected
(`core.work.clock_jumps`).
"""

import threading
import time

import structlog

from core.db.session import Database
from core.work import clock_jumps

log = structlog.get_logger(__name__)

CALM_S = 3600.0
"""Seconds after a jump in which nothing is removed."""


class ClockWatch:
    """The clock watch of one worker; call `compare_clocks` every few seconds. Safe for several
    threads.

    Args:
        lease_s: seconds of the workers' claims.
    """

    def __init__(self, db: Database, lease_s: float) -> None:
        self._db = db
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._last: tuple[float, float] | None = None
        """Times of the database's clock and of the monotonic clock at the last look."""
        self._calm_until = -1.0

    def compare_clocks(self) -> None:
        """Compare the clocks; at the first look, only correct times that lie too far ahead.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not respond.
        """
        with self._db.read() as session:
            database_s, monotonic_s = self._db.now(session), time.monotonic()
        with self._lock:
            moved_s = (
                0.0
                if self._last is None
                else (database_s - self._last[0]) - (monotonic_s - self._last[1])
            )
            if self._last is None or moved_s < -clock_jumps.JUMP_S:
                self._bring_near()
            self._last = database_s, monotonic_s
            if abs(moved_s) > clock_jumps.JUMP_S:
                self._calm_until = monotonic_s + CALM_S
                log.warning(
                    "the clock of the database was put forward or back: nothing is removed for an "
                    "hour; if it is wrong now, put it right",
                    days=round(moved_s / 86_400, 2),
                )

    def is_calm(self) -> bool:
        """Return True if old data may be removed, since the clock has not jumped within the last
        hour.
        """
        try:
            self.compare_clocks()
        finally:
            with self._lock:
                calm = time.monotonic() >= self._calm_until
        return calm

    def _bring_near(self) -> None:
        """Correct times that lie too far ahead."""
        with self._db.write() as session:
            changed_rows = clock_jumps.bring_near(session, self._db.now(session), self._lease_s)
        if changed_rows:
            log.warning(
                "times in a far future were brought near: the clock was put back", rows=changed_rows
            )
