"""The bytes that an owner may have in the store (`PERENNIAL_MAX_OWNER_BYTES`).

Asked before an upload is read, by its declared length, and again in the transaction that accepts it: there
uploads that run side by side cannot exceed the limit together. A refusal rests on a sum that is at most
`FRESH_S` old, so that deleting helps at once. Versions that jobs publish and exports count, but are never
refused: nobody loses what he has learned, or cannot take it home.
"""

from sqlalchemy.orm import Session

from core.db import stored_bytes
from core.db.session import Database
from core.errors import BodyTooLarge, StorageFull

FRESH_S = 10.0
RETRY_S = 60


def require_room(db: Database, owner_id: str, limit: int, size: int | None) -> None:
    """Refuse an upload of `size` bytes (None: not known yet) for which the owner has no room.

    Args:
        limit: 0 means none.

    Raises:
        BodyTooLarge: it would not fit if the owner had nothing else.
        StorageFull: it does not fit beside what the owner has.
    """
    if not limit:
        return
    size = max(1, size or 0)
    if size > limit:
        raise BodyTooLarge(f"One owner may store {limit} bytes; this upload alone has {size}.")
    with db.read() as session:
        used, at = stored_bytes.known(session, owner_id)
        now = db.now(session)
    if used is None or (used + size > limit and (at is None or now - at > FRESH_S)):
        used = stored_bytes.measured(db, owner_id)
    if used + size > limit:
        raise _full(used, limit, size)


def take(session: Session, owner_id: str, limit: int, size: int) -> None:
    """Count an upload in the transaction that accepts it; last in it. `require_room` comes first.

    Raises:
        StorageFull: another upload took the room meanwhile.
    """
    if not limit:
        stored_bytes.add(session, owner_id, size)
    elif not stored_bytes.take(session, owner_id, size, limit):
        raise _full(stored_bytes.known(session, owner_id)[0] or 0, limit, size)


def _full(used: int, limit: int, size: int) -> StorageFull:
    return StorageFull(
        f"{used} of the {limit} bytes that one owner may store are taken"
        f", and this upload has {size if size > 1 else 'more'}. Delete models, a task's data or a model's memory, or ask for a higher limit.",
        extra={"used": used, "limit": limit},
        retry_after_s=RETRY_S,
    )
