"""What an owner has in the store, as one figure in his row: a quota is checked without a sum over his tasks.

Whoever stores bytes for an owner adds them in the same transaction. What is deleted is not taken off: the
figure is never too low, and `measured` puts it right when it has reached a limit. NULL: not measured yet.
"""

from typing import Any

from sqlalchemy import case, func, select, update
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Base, Export, Model, Owner, Part, Task, Version


def add(session: Session, owner_id: str, size: int) -> None:
    """Count `size` bytes, in the transaction that names them; last in it, since it locks the owner's row."""
    session.execute(update(Owner).where(Owner.id == owner_id).values(bytes=Owner.bytes + size))


def take(session: Session, owner_id: str, size: int, limit: int) -> bool:
    """Count `size` bytes unless that would exceed `limit`, or nothing was measured yet; whether it did."""
    fits = update(Owner).where(Owner.id == owner_id, Owner.bytes + size <= limit)
    found: Any = session.execute(fits.values(bytes=Owner.bytes + size))
    return bool(found.rowcount)


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
    """Each blob counts once per model, as in `core.requests.usage`."""
    mine = Model.owner_id == owner_id
    kept = case(
        (Task.train_sha256.is_not(None) & Task.train_deleted_at.is_(None), func.coalesce(Task.n_train, 0)),
        else_=0,
    ) + case(
        (
            Task.held_out_sha256.is_not(None) & Task.held_out_deleted_at.is_(None),
            func.coalesce(Task.n_held_out, 0),
        ),
        else_=0,
    )
    waiting = case((Task.archive_key.is_not(None), Task.bytes), else_=0)
    tasks = (
        select(Task.model_id, func.sum(waiting).label("archives"), func.sum(kept).label("images"))
        .join(Model, Model.id == Task.model_id)
        .where(mine)
        .group_by(Task.model_id)
        .subquery()
    )
    total = 0
    per_model = select(Model.image, tasks.c.archives, tasks.c.images).join(
        tasks, tasks.c.model_id == Model.id
    )
    for image, archives, images in session.execute(per_model):
        total += int(archives) + int(images) * int(image["size"]) ** 2 * int(image["channels"])
    parts = (
        select(Version.model_id, Part.sha256, func.max(Part.bytes).label("bytes"))
        .join(Version, Version.id == Part.version_id)
        .join(Model, Model.id == Version.model_id)
        .where(mine, Part.deleted_at.is_(None))
        .group_by(Version.model_id, Part.sha256)
    )
    exports = (
        select(Export.bytes)
        .join(Version, Version.id == Export.version_id)
        .join(Model, Model.id == Version.model_id)
        .where(mine)
    )
    bases = (
        select(Base.sha256, func.max(Base.bytes).label("bytes"))
        .where(Base.owner_id == owner_id)
        .group_by(Base.sha256)
    )
    for blobs in (parts, exports, bases):
        total += int(session.scalar(select(func.sum(blobs.subquery().c.bytes))) or 0)
    return total
