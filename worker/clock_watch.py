"""Detection of jumps of the database's clock, by comparison with a monotonic clock.

If the clock is set forward by a year, everything looks old. The clock may have been wrong before or
be wrong now. Nothing is therefore removed for an hour, in which a person can read the warning and
correct the clock.

Leases, pauses and retries are times of the database's clock too. If that clock is set forward, all
leases run out at once, and live workers renew them before others may take their jobs
(`worker.reaper`). If it is set back, the lease of a dead worker would last until the old time comes
again. A job that was put off for five seconds would wait as long. None of these times is ever
further ahead than its own period, so one that is shows that the clock went back, and is corrected.
"""

import threading
import time

import structlog
from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.tables import (
    IdempotencyRecord,
    IntegrityScrubProgress,
    Job,
    Upload,
    Webhook,
    WorkerReport,
)
from core.webhooks.outbox import JITTER, RETRY_S

log = structlog.get_logger(__name__)

CALM_S = 3600.0
"""Seconds after a jump in which nothing is removed."""
JUMP_S = 3600.0
"""Seconds by which the clock must differ from a monotonic one to count as set.

A smaller jump heals within an hour.
"""
HELD_S = 60.0
"""Seconds for which an upload or webhook remains leased whose lease lay too far ahead.

A live holder renews it.
"""


class DatabaseClockWatch:
    """Detects jumps of the database clock against the monotonic clock. Safe for several threads.

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

    def detect_and_correct_clock_jump(self) -> None:
        """Compare the database's clock with the monotonic clock, and correct stored times after a
        jump.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not respond.
        """
        with self._db.read() as session:
            database_s, monotonic_s = self._db.now(session), time.monotonic()
        # Sweeps and chores look from different threads.
        with self._lock:
            moved_s = (
                0.0
                if self._last is None
                else (database_s - self._last[0]) - (monotonic_s - self._last[1])
            )
            # At the first look, the clock may have been set back while no worker was running.
            if self._last is None or moved_s < -JUMP_S:
                self._correct_stored_times()
            # After the correction, so that the next look repeats one that failed.
            self._last = database_s, monotonic_s
            if abs(moved_s) > JUMP_S:
                self._calm_until = monotonic_s + CALM_S
                log.warning(
                    "the clock of the database was put forward or back: nothing is removed for an "
                    "hour; if it is wrong now, put it right",
                    days=round(moved_s / 86_400, 2),
                )

    def detect_jump_and_report_steadiness(self) -> bool:
        """Compare the clocks, correct stored times after a jump, and return True if there was none
        within the last hour, so that old data may be removed.
        """
        try:
            self.detect_and_correct_clock_jump()
        finally:
            with self._lock:
                calm = time.monotonic() >= self._calm_until
        return calm

    def _correct_stored_times(self) -> None:
        """Correct times in the database that lie too far in the future, and log it."""
        with self._db.write() as session:
            changed_rows = correct_future_times(session, self._db.now(session), self._lease_s)
        if changed_rows:
            log.warning(
                "times in a far future were brought near: the clock was put back", rows=changed_rows
            )


def correct_future_times(session: Session, now: float, lease_s: float) -> int:
    """Correct stored times that lie too far in the future, in the caller's transaction.

    Return the number of changed rows.

    Args:
        now: seconds since 1970 by the database's clock.
        lease_s: seconds of the workers' claims.
    """
    ahead = now + JUMP_S
    # A delivery may rightly be due that far ahead.
    longest_s = RETRY_S[-1] * (1 + JITTER)
    changes = (
        update(Job).where(Job.lease_until > ahead + lease_s).values(lease_until=now + lease_s),
        update(Job).where(Job.not_before > ahead).values(not_before=now),
        update(Upload).where(Upload.held_until > ahead).values(held_until=now + HELD_S),
        update(Webhook).where(Webhook.lease_until > ahead).values(lease_until=now + HELD_S),
        update(Webhook).where(Webhook.due_at > ahead + longest_s).values(due_at=now),
        update(IntegrityScrubProgress)
        .where(IntegrityScrubProgress.lease_until > ahead + lease_s)
        .values(lease_until=now + lease_s),
        update(IdempotencyRecord)
        .where(IdempotencyRecord.status.is_(None), IdempotencyRecord.created_at > ahead)
        .values(created_at=now),
        # A report from the future would count as present until that time comes.
        delete(WorkerReport).where(WorkerReport.seen_at > ahead),
    )
    return sum(session.execute(change).rowcount for change in changes)  # type: ignore[attr-defined]
