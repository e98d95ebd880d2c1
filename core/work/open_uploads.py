"""Removal of resumable uploads that were not completed in time, and of their objects."""

from sqlalchemy import Select, or_, select

from core.db import chunks
from core.db.session import Database
from core.db.tables import Upload
from core.store import Store

_BATCH = 200
"""Number of uploads removed in one transaction: thousands may expire in one minute, and other
writers must get in between.
"""


def remove_expired(db: Database, store: Store) -> None:
    """Remove expired uploads that no request is writing to, then delete their objects.

    Objects that a crash leaves have no row, so the sweep removes them.
    """
    while True:
        with db.read() as session:  # without an expired upload, no writer is kept waiting
            if not session.scalars(_select_expired(db.now(session), 1)).all():
                return
        with db.write() as session:
            query = _select_expired(db.now(session), _BATCH)
            ids = list(session.scalars(query.with_for_update(skip_locked=True)))
            keys = chunks.delete_uploads(session, ids)
        for key in keys:
            store.delete(key)
        if len(ids) < _BATCH:
            return


def _select_expired(now: float, most: int) -> Select[str]:
    """Return the query for expired uploads that no request is writing to."""
    free = or_(Upload.held_until.is_(None), Upload.held_until <= now)
    return (
        select(Upload.id)
        .where(Upload.expires_at <= now, free)
        .order_by(Upload.expires_at)
        .limit(most)
    )
