"""Objects of the store that nothing in the database names: a process died between the two."""

from collections.abc import Callable, Collection

from sqlalchemy.orm import Session

from core.db.session import Database
from core.store import Store
from core.work.retention import DAY_S

_BATCH = 200


def remove(
    db: Database,
    store: Store,
    prefix: str,
    named: Callable[[Session, Collection[str]], set[str]],
    grace_days: float,
) -> None:
    """Delete the objects below `prefix` that nothing names.

    Args:
        named: those of some hundred keys that something names.
        grace_days: age before they go: a younger one may be about to be named.
    """
    with db.read() as session:
        limit = db.now(session) - grace_days * DAY_S
    old = [info.key for info in store.list(prefix) if info.modified < limit]
    for start in range(0, len(old), _BATCH):
        batch = old[start : start + _BATCH]
        with db.read() as session:
            known = named(session, batch)
        for key in set(batch) - known:
            store.delete(key)
