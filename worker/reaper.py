"""Takes jobs from workers that died, and not from those that could not renew their lease for an outage.

A clock of the database that is put forward is like an outage: all leases have run out, and workers renew them. One that
is put back begins the half lease again; what lies in a far future then is brought near (`core.work.clock_jumps`).

When the database was out for longer than a lease, every lease has run out by the time it answers again, though the
workers live. The first to look would take all jobs from the others, each time as a strike. So nothing is taken until
the database has answered for half a lease.

A worker reports since when it has answered, and one that begins goes on from there: workers that die young would
otherwise all wait in vain. Between a report and the next answer an outage may hide, but only one of a third of a lease.
A heartbeat that fails meanwhile is renewed in time: it is at most a sixth of a lease old when the outage begins, and
takes another third at most to notice the end.
"""

import time

from sqlalchemy.exc import SQLAlchemyError

from core.db import workers
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
        self._gap_s = lease_s / 3
        self._slow_s = lease_s / 6
        self._answered_at = 0.0
        self.answers_since: float | None = None
        """Since when the database has answered, by its clock; None: not known."""

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
                if self.answers_since is None:
                    self.answers_since = workers.answers_since(session, now - self._gap_s, now) or now
                    self._answered_at = now
            slow_s = time.monotonic() - begun
            if (
                slow_s > self._slow_s or not 0 <= now - self._answered_at <= self._gap_s
            ):  # <0: a clock put back
                self.answers_since = now + slow_s
            self._answered_at = now
            if now + slow_s - self.answers_since < self._grace_s:
                return []
            return claims.reap(self._db, now)
        except SQLAlchemyError:
            self.answers_since = None
            raise
