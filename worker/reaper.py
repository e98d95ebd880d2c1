"""Taking jobs back from dead workers, but not from live ones after an outage.

If the database was out for longer than a lease, every lease has run out when it responds again,
although the workers live. The first worker to look would take all jobs from the others, each time
as a strike. So nothing is taken until the database has responded for half a lease.

A database clock that is set forward has the same effect as an outage: all leases have run out, and
workers renew them. One that is set back starts the half lease again; times in the far future are
then corrected (`worker.clock_watch`).

A worker reports since when the database has responded, and a new worker continues from there;
otherwise workers that die young would all wait in vain. An outage may hide between a report and the
next response, but only one of a third of a lease. A heartbeat that fails meanwhile is renewed in
time: it is at most a sixth of a lease old when the outage begins, and takes another third at most
to notice the end.
"""

import time

from sqlalchemy.exc import SQLAlchemyError

from core.database.session import Database
from core.jobs import workers
from core.scheduling import claim as claims


class ExpiredJobRequeuer:
    """Takes back jobs of workers that no longer extend their leases. For one thread.

    Args:
        lease_s: seconds of the workers' claims.
    """

    def __init__(self, db: Database, lease_s: float) -> None:
        self._db = db
        self._grace_s = lease_s / 2
        self._gap_s = lease_s / 3
        self._slow_s = lease_s / 6
        self._answered_at = 0.0
        self.answers_since: float | None = None
        """Time since when the database has responded, by its clock; None if unknown."""

    def requeue_expired_jobs(self) -> list[str]:
        """Put jobs with expired leases back in the queue, and return their ids.

        It takes none while others may still be about to renew.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not respond.
        """
        try:
            started_at = time.monotonic()
            # Leases are judged by this time, even if the database hangs between here and the
            # update.
            with self._db.read() as session:
                now = self._db.now(session)
                if self.answers_since is None:
                    self.answers_since = (
                        workers.read_database_available_since(session, now - self._gap_s, now)
                        or now
                    )
                    self._answered_at = now
            # A slow answer is an outage for others, too: their heartbeats waited as long.
            slow_s = time.monotonic() - started_at
            # The difference is negative if the clock was put back.
            if slow_s > self._slow_s or not 0 <= now - self._answered_at <= self._gap_s:
                self.answers_since = now + slow_s
            self._answered_at = now
            if now + slow_s - self.answers_since < self._grace_s:
                return []
            return claims.take_back_jobs_with_expired_lease(self._db, now)
        except SQLAlchemyError:
            # After an outage, living workers get half a lease to renew before their jobs are taken.
            self.answers_since = None
            raise
