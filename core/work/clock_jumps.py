"""Correction of times that lie too far ahead after the database's clock was set back.

Leases, pauses and retries are times of the database's clock. If that clock is set forward, all
leases run out at once, and live workers renew them before others may take their jobs
(`worker.reaper`). If it is set back, the lease of a dead worker would last until the old time comes
again. A job that was put off for five seconds would wait as long. None of these times is ever
further ahead than its own period, so one that is shows that the clock went back.
"""

from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from core.db.tables import Idempotency, Job, Scrub, Upload, Webhook, WorkerReport
from core.work.deliveries import JITTER, RETRY_S

JUMP_S = 3600.0
"""Seconds by which the clock must differ from a monotonic one to count as set.

A smaller jump heals within an hour.
"""
HELD_S = 60.0
"""Seconds for which an upload or webhook remains leased whose lease lay too far ahead.

A live holder renews it.
"""


def bring_near(session: Session, now: float, lease_s: float) -> int:
    """Correct times that lie too far ahead, in the caller's transaction.

    Return the number of changed rows.

    Args:
        now: seconds since 1970 by the database's clock.
        lease_s: seconds of the workers' claims.
    """
    ahead = now + JUMP_S
    longest_s = RETRY_S[-1] * (1 + JITTER)
    changes = (
        update(Job).where(Job.lease_until > ahead + lease_s).values(lease_until=now + lease_s),
        update(Job).where(Job.not_before > ahead).values(not_before=now),
        update(Upload).where(Upload.held_until > ahead).values(held_until=now + HELD_S),
        update(Webhook).where(Webhook.lease_until > ahead).values(lease_until=now + HELD_S),
        update(Webhook).where(Webhook.due_at > ahead + longest_s).values(due_at=now),
        update(Scrub).where(Scrub.lease_until > ahead + lease_s).values(lease_until=now + lease_s),
        update(Idempotency)
        .where(Idempotency.status.is_(None), Idempotency.created_at > ahead)
        .values(created_at=now),
        delete(WorkerReport).where(WorkerReport.seen_at > ahead),
    )
    return sum(session.execute(change).rowcount for change in changes)  # type: ignore[attr-defined]
