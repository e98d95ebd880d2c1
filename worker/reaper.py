"""Takes jobs from workers that died, and not from those that could not renew their lease for an outage.

When the database was out for longer than a lease, every lease has run out by the time it answers again, though the
workers live. Whoever looks first would take all jobs from the others, each time as a strike. So a reaper that has
noticed an outage, or has just begun, first gives the others half a lease to beat.
"""

import time

from sqlalchemy.exc import SQLAlchemyError

from core.db.session import Database
from core.work import claim as claims


class Reaper:
    """The reaping of one worker. Not for several threads.

    Args:
        lease_s: of the workers' claims.
    """

    def __init__(self, db: Database, lease_s: float) -> None:
        self._db = db
        self._grace_s = lease_s / 2
        self._slow_s = lease_s / 6
        self._steady_since: float | None = None

    def reap(self) -> list[str]:
        """The ids of jobs that were taken back; none while others may still be about to renew.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        try:
            begun = time.monotonic()
            # Leases are judged by this time, also when the database hangs between here and the taking.
            with self._db.read() as session:
                now = self._db.now(session)
            answered = time.monotonic()
            if self._steady_since is None or answered - begun > self._slow_s:
                self._steady_since = answered
            if answered - self._steady_since < self._grace_s:
                return []
            return claims.reap(self._db, now)
        except SQLAlchemyError:
            self._steady_since = None
            raise
