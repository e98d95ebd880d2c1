"""Removal of objects without a row, left by a process that died between store and database."""

from collections.abc import Callable, Collection

from sqlalchemy.orm import Session

from core.db.session import Database
from core.store import Store
from core.work.retention import DAY_S

_BATCH = 200


def remove_objects(
    db: Database,
    store: Store,
    prefix: str,
    named: Callable[[Session, Collection[str]], set[str]],
    grace_days: float,
) -> None:
    """Delete the objects below `prefix` without a row.

    Args:
        named: function that returns those of some keys that have a row.
        grace_days: minimum age in days, since a younger object may be about to get its row.
    """
    with db.read() as session:
        limit = db.now(session) - grace_days * DAY_S
    old = [info.key for info in store.list(prefix) if info.modified < limit]
    for start in range(0, len(old), _BATCH):
        batch = old[start : start + _BATCH]
        with db.read() as session:
            named_keys = named(session, batch)
        for key in set(batch) - named_keys:
            store.delete(key)
