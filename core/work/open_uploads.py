"""Uploads that can be resumed and were not: they go when their time is over, with what they have in the store."""

from sqlalchemy import or_, select

from core.db import chunks
from core.db.session import Database
from core.db.tables import Upload
from core.store import Store


def remove_expired(db: Database, store: Store) -> None:
    """Forget uploads whose time is over and to which nobody writes now, then delete their objects.

    Objects that a crash leaves are those that nothing names.
    """
    with db.read() as session:
        over = Upload.expires_at <= db.now(session)
        ids = list(session.scalars(select(Upload.id).where(over).order_by(Upload.expires_at)))
    for upload_id in ids:
        with db.write() as session:
            now = db.now(session)
            free = or_(Upload.held_until.is_(None), Upload.held_until <= now)
            query = select(Upload).where(Upload.id == upload_id, Upload.expires_at <= now, free)
            row = session.scalars(query.with_for_update()).first()
            keys = [] if row is None else chunks.forget(session, row.id)
        for key in keys:
            store.delete(key)
