"""Parts of the version that a job continues: its own, and those in which its ancestors keep their tasks' state."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.tables import Part, Version
from core.protocol.manifest import PER_TASK, REST, STATISTICS


def read_parts(session: Session, version: Version) -> list[Part]:
    """Return all parts that a job reads which continues a version."""
    return [*read_own_parts(session, version), *read_parts_of_earlier_tasks(session, version)]


def read_own_parts(session: Session, version: Version) -> list[Part]:
    """Return a version's own parts, without those that no job reads."""
    query = select(Part).where(Part.version_id == version.id, Part.name.not_like(f"%.{REST}"))
    return list(session.execute(query.order_by(Part.position)).scalars())


def read_parts_of_earlier_tasks(session: Session, parent: Version) -> list[Part]:
    """Return the parts in which the versions before the parent keep sums and features of their tasks.

    They go back as far as all have sums. Features may be gone with their task's data, and those that no job reads
    are left out.
    """
    query = (
        select(Version.number, Version.parent, Part)
        .join(Part, Part.version_id == Version.id)
        .where(
            Version.model_id == parent.model_id,
            Part.type.in_(PER_TASK),
            Part.deleted_at.is_(None),
            Part.name.not_like(f"%.{REST}"),
        )
        .order_by(Part.position)
    )
    known: dict[int, tuple[int | None, list[Part]]] = {}
    for number, before, part in session.execute(query):
        known.setdefault(number, (before, []))[1].append(part)
    found: list[Part] = []
    at = known.get(parent.number)
    while at is not None and at[0] is not None and (at := known.get(at[0])) is not None:
        if all(part.type != STATISTICS for part in at[1]):
            break
        found[:0] = at[1]
    return found
