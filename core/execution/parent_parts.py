"""Parts of the version that a job continues, and of ancestors that hold tasks' state."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.manifest import PER_TASK, REST, STATISTICS
from core.database.tables import Edit, Version, VersionPart
from core.lineage.coverage import list_taught_tasks


def list_parts_needed_to_continue(session: Session, version: Version) -> list[VersionPart]:
    """Return all stored parts that a job needs to continue from a version."""
    return [
        *list_parts_of_version_itself(session, version),
        *read_feature_parts_of_earlier_tasks(session, version),
    ]


def list_parts_of_version_itself(session: Session, version: Version) -> list[VersionPart]:
    """Return the parts stored by a version itself, without those that no job reads."""
    query = select(VersionPart).where(
        VersionPart.version_id == version.id, VersionPart.name.not_like(f"%.{REST}")
    )
    return list(session.execute(query.order_by(VersionPart.position)).scalars())


def read_feature_parts_of_earlier_tasks(session: Session, parent: Version) -> list[VersionPart]:
    """Read parts of a version's ancestors that hold feature sums and features of earlier tasks.

    They go back as far as all ancestors have sums. Features may have been deleted with their task's
    data. Parts that no job reads are left out, and so are those of tasks that an edit removed.
    """
    # One query for the whole lineage; one for each ancestor would take longer with every task.
    query = (
        select(Version.number, VersionPart)
        .join(VersionPart, VersionPart.version_id == Version.id)
        .where(
            Version.model_id == parent.model_id,
            VersionPart.type.in_(PER_TASK),
            VersionPart.deleted_at.is_(None),
            VersionPart.name.not_like(f"%.{REST}"),
        )
        .order_by(VersionPart.position)
    )
    by_number: dict[int, list[VersionPart]] = {}
    for version, part in session.execute(query):
        by_number.setdefault(version, []).append(part)
    if not by_number:
        return []
    ancestors = _read_parent_links_of_versions(session, parent)
    # An edit stores the sums of its tasks again: the newest part of a name is the valid one.
    newer_names = {part.name for part in by_number.get(parent.number, [])}
    if not newer_names and not ancestors[parent.number].goes_on:
        return []
    of_taught = {
        f"{kind}.{task}" for kind in PER_TASK for task in list_taught_tasks(parent.manifest)
    }
    parts: list[VersionPart] = []
    number: int | None = ancestors[parent.number].parent
    while number is not None:
        version_parts = by_number.get(number, [])
        if not ancestors[number].goes_on and all(part.type != STATISTICS for part in version_parts):
            break
        # In the order of tasks, because sums in another order differ in their last bits.
        parts[:0] = [
            part
            for part in version_parts
            if part.name not in newer_names and part.name in of_taught
        ]
        newer_names |= {part.name for part in version_parts}
        number = ancestors[number].parent
    return parts


@dataclass(frozen=True)
class _VersionParentLink:
    """A version of a model's lineage, with the columns needed to find its parts.

    Attributes:
        parent: version that it continues.
        goes_on: True if an edit made it without learning, so that its parent's sums are its own,
            but for those that it stores again.
    """

    parent: int | None
    goes_on: bool


def _read_parent_links_of_versions(
    session: Session, version: Version
) -> dict[int, _VersionParentLink]:
    """Read the parents of all versions of a model up to one of them, by number."""
    query = (
        select(Version.number, Version.parent, Edit.way)
        .outerjoin(Edit, (Edit.model_id == Version.model_id) & (Edit.version == Version.number))
        .where(Version.model_id == version.model_id, Version.number <= version.number)
    )
    return {
        number: _VersionParentLink(parent, way in ("rename", "patch"))
        for number, parent, way in session.execute(query)
    }
