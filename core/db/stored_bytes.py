"""What an owner has in the store, as one figure in his row: a quota is checked without a sum over his tasks.

Whoever stores bytes for an owner adds them in the same transaction. What is deleted is not taken off: the
figure is never too low, and `measured` puts it right when it has reached a limit. NULL: not measured yet.
"""

from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from core.db import usage
from core.db.session import Database
from core.db.tables import Owner


def add(session: Session, owner_id: str, size: int) -> None:
    """Count `size` bytes, in the transaction that names them; last in it, since it locks the owner's row."""
    session.execute(update(Owner).where(Owner.id == owner_id).values(bytes=Owner.bytes + size))


def take(session: Session, owner_id: str, size: int, limit: int) -> bool:
    """Count `size` bytes unless that would exceed `limit`, or nothing was measured yet; whether it did."""
    fits = update(Owner).where(Owner.id == owner_id, Owner.bytes + size <= limit)
    found: Any = session.execute(fits.values(bytes=Owner.bytes + size))
    return bool(found.rowcount)


def outdate(session: Session, owner_id: str) -> None:
    """Something of the owner's is deleted in this transaction: the next refusal measures again. Last in it, too."""
    session.execute(update(Owner).where(Owner.id == owner_id).values(bytes_at=None))


def known(session: Session, owner_id: str) -> tuple[int | None, float | None]:
    """The figure, and when it was measured (database's clock)."""
    row = session.execute(select(Owner.bytes, Owner.bytes_at).where(Owner.id == owner_id)).one()
    return row.bytes, row.bytes_at


def measured(db: Database, owner_id: str) -> int:
    """Sum up what the owner has, and write it down; bytes.

    What others add meanwhile is kept. Of two processes that measure at once the first one's figure stands.
    """
    with db.read() as session:
        before, at = known(
            session, owner_id
        )  # first: what is added during the sum may count twice, never not
        total = _sum(session, owner_id)
    with db.write() as session:
        same = Owner.bytes_at.is_(None) if at is None else Owner.bytes_at == at
        since = func.coalesce(Owner.bytes, 0) - (before or 0)
        new = update(Owner).where(Owner.id == owner_id, same)
        session.execute(new.values(bytes=total + since, bytes_at=db.now(session)))
        return known(session, owner_id)[0] or 0


def _sum(session: Session, owner_id: str) -> int:
    found = usage.of_owner(session, owner_id)["bytes"]
    of_models = found["versions"] + found["archives"] + found["datasets"] + found["exports"]
    return of_models + found["bases"] + found["uploads"]
