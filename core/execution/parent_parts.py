"""Parts of the version that a job continues, and of ancestors that hold tasks' state."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.manifest import PER_TASK, REST, STATISTICS
from core.database.tables import Part, Version


def list_parts_to_continue(session: Session, version: Version) -> list[Part]:
    """Return all parts that a job reads to continue a version."""
    return [*list_own_parts(session, version), *read_parts_of_earlier_tasks(session, version)]


def list_own_parts(session: Session, version: Version) -> list[Part]:
    """Return a version's own parts, without those that no job reads."""
    query = select(Part).where(Part.version_id == version.id, Part.name.not_like(f"%.{REST}"))
    return list(session.execute(query.order_by(Part.position)).scalars())


def read_parts_of_earlier_tasks(session: Session, parent: Version) -> list[Part]:
    """Return the parts in which the parent's ancestors hold sums and features of their tasks.

    They go back as far as all ancestors have sums. Features may have been deleted with their task's
    data. Parts that no job reads are left out.
    """
    # One query for the whole lineage; one for each ancestor would take longer with every task.
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
    by_number: dict[int, tuple[int | None, list[Part]]] = {}
    for number, previous, part in session.execute(query):
        by_number.setdefault(number, (previous, []))[1].append(part)
    parts: list[Part] = []
    # An edit stores the sums of earlier tasks again: the newest part of a name is the valid one.
    known = {part.name for _, own in [by_number.get(parent.number, (None, []))] for part in own}
    ancestor = by_number.get(parent.number)
    while (
        ancestor is not None
        and ancestor[0] is not None
        and (ancestor := by_number.get(ancestor[0])) is not None
    ):
        if all(part.type != STATISTICS for part in ancestor[1]):
            break
        # In the order of tasks, because sums in another order differ in their last bits.
        parts[:0] = [part for part in ancestor[1] if part.name not in known]
        known |= {part.name for part in ancestor[1]}
    return parts
