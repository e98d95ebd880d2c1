"""Parts of older versions with features or images of tasks from which an edit removed images."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.manifest import FEATURES
from core.contract.part_types import PRIVATE_TYPES
from core.database.tables import Edit, Version, VersionPart
from core.edits.rewrite import get_names_of_task_feature_parts


def find_older_version_parts_of_edited_tasks(
    session: Session, edit: Edit
) -> Sequence[tuple[VersionPart, int]]:
    """Return parts of earlier versions that hold features or images of an edit's tasks, with the
    version numbers.
    """
    query = (
        select(VersionPart, Version.number)
        .join(Version, Version.id == VersionPart.version_id)
        .where(
            Version.model_id == edit.model_id,
            Version.number < (edit.version or 0),
            VersionPart.type.in_(sorted(PRIVATE_TYPES)),
            VersionPart.deleted_at.is_(None),
        )
    )
    older_parts = [(part, number) for part, number in session.execute(query)]
    features = {name for task in edit.tasks for name in get_names_of_task_feature_parts(task)}
    suffixes = tuple(f".images.{task}" for task in edit.tasks)
    # A memory without one of its packs cannot be read, so all of it goes.
    memories = {(n, part.type) for part, n in older_parts if part.name.endswith(suffixes)}
    return [
        (part, n)
        for part, n in older_parts
        if (part.name in features if part.type == FEATURES else (n, part.type) in memories)
    ]
