"""Uploads that can be resumed and were not: they go when their time is over, with what they have in the store."""

from sqlalchemy import Select, or_, select

from core.db import chunks
from core.db.session import Database
from core.db.tables import Upload
from core.store import Store

_BATCH = 200
"""Uploads of one transaction: thousands may expire in the same minute, and others write between two of them."""


def remove_expired(db: Database, store: Store) -> None:
    """Forget uploads whose time is over and to which nobody writes now, then delete their objects.

    Objects that a crash leaves are those that nothing names.
    """
    while True:
        with db.read() as session:  # without any, nobody waits for a writer
            if not session.scalars(_expired(db.now(session), 1)).all():
                return
        with db.write() as session:
            query = _expired(db.now(session), _BATCH)
            ids = list(session.scalars(query.with_for_update(skip_locked=True)))
            keys = chunks.forget_all(session, ids)
        for key in keys:
            store.delete(key)
        if len(ids) < _BATCH:
            return


def _expired(now: float, most: int) -> Select[str]:
    free = or_(Upload.held_until.is_(None), Upload.held_until <= now)
    return select(Upload.id).where(Upload.expires_at <= now, free).order_by(Upload.expires_at).limit(most)
