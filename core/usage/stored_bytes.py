"""An owner's stored bytes as one number in the owner's row, so that a quota needs no sum.

Bytes are added in the transaction that stores them. Deleted bytes are not subtracted, so the number
is never too low; `measure_and_store_owner_bytes` corrects it when it reaches a limit. NULL means that it was
not measured yet.
"""

from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.tables import Owner
from core.usage import usage_sums


def add_stored_bytes(session: Session, owner_id: str, size: int) -> None:
    """Add `size` bytes to an owner's stored bytes, in the transaction that refers to them.

    Call this last, since it locks the owner's row.
    """
    session.execute(update(Owner).where(Owner.id == owner_id).values(bytes=Owner.bytes + size))


def try_add_stored_bytes_within_limit(
    session: Session, owner_id: str, size: int, limit: int
) -> bool:
    """Add `size` bytes to an owner's stored bytes, unless that would exceed `limit` or nothing was
    measured yet.

    Return True if counted.
    """
    # Checked and counted in one statement, so that concurrent uploads cannot exceed it together.
    fits = update(Owner).where(Owner.id == owner_id, Owner.bytes + size <= limit)
    result: Any = session.execute(fits.values(bytes=Owner.bytes + size))
    return bool(result.rowcount)


def mark_owner_bytes_outdated(session: Session, owner_id: str) -> None:
    """Mark an owner's number of stored bytes as outdated, since this transaction deletes data.

    The next refusal measures again. Call this last, since it locks the owner's row.
    """
    session.execute(update(Owner).where(Owner.id == owner_id).values(bytes_at=None))


def read_measured_owner_bytes(session: Session, owner_id: str) -> tuple[int | None, float | None]:
    """Return an owner's number of stored bytes, and the time when it was measured."""
    row = session.execute(select(Owner.bytes, Owner.bytes_at).where(Owner.id == owner_id)).one()
    return row.bytes, row.bytes_at


def measure_and_store_owner_bytes(db: Database, owner_id: str) -> int:
    """Sum up an owner's stored bytes; record and return the sum.

    Bytes that others add meanwhile are kept. If two processes measure at once, the first one's
    number stands.
    """
    with db.read() as session:
        before, at = read_measured_owner_bytes(
            session, owner_id
        )  # first: bytes added during the sum may count twice, but never not at all
        total = _sum_owner_bytes(session, owner_id)
    with db.write() as session:
        same = Owner.bytes_at.is_(None) if at is None else Owner.bytes_at == at
        since = func.coalesce(Owner.bytes, 0) - (before or 0)
        new = update(Owner).where(Owner.id == owner_id, same)
        session.execute(new.values(bytes=total + since, bytes_at=db.now(session)))
        return read_measured_owner_bytes(session, owner_id)[0] or 0


def _sum_owner_bytes(session: Session, owner_id: str) -> int:
    """Compute the sum of all bytes that an owner stores."""
    sums = usage_sums.sum_owner_usage(session, owner_id)["bytes"]
    of_models = sums["versions"] + sums["archives"] + sums["datasets"] + sums["exports"]
    return of_models + sums["bases"] + sums["uploads"]
