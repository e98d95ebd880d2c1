"""The line of versions that a version comes from."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.tables import Version


def ancestors(session: Session, model_id: str, number: int) -> list[Version]:
    """The versions from 0 to `number` along the parents, 0 first.

    Raises:
        sqlalchemy.exc.NoResultFound: the model has no such version.
    """
    line: list[Version] = []
    wanted: int | None = number
    while wanted is not None:
        version = session.execute(
            select(Version).where(Version.model_id == model_id, Version.number == wanted)
        ).scalar_one()
        line.insert(0, version)
        wanted = version.parent
    return line
