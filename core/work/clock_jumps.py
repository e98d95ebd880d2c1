"""The database's clock put back: what then lies in a future that no lease reaches is brought near again.

Leases, pauses and retries are times of the database's clock. Where somebody puts that clock forward, all leases have
run out at once, and workers that live renew them before anybody may take their jobs (`worker.reaper`). Where it is put
back, a lease of a worker that has died would last until the old time comes again, and a job that was put off for five
seconds would wait as long. No time of these is ever further ahead than its own period, so one that is shows a clock
that went back.
"""

from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from core.db.tables import Idempotency, Job, Scrub, Upload, Webhook, WorkerReport
from core.work.deliveries import JITTER, RETRY_S

JUMP_S = 3600.0
"""A clock that moves further than this beside a monotonic one was put forward or back; less heals in an hour."""
HELD_S = 60.0
"""For so long an upload or webhook stays held whose hold lies too far ahead: its holder renews it, if it lives."""


def bring_near(session: Session, now: float, lease_s: float) -> int:
    """Bring near what lies too far ahead, in the caller's transaction; returns how many rows did.

    Args:
        now: seconds since 1970 by the database's clock.
        lease_s: of the workers' claims.
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
