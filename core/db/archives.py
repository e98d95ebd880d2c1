"""Which uploaded archives are in use: those of tasks that are not decoded yet, and those of jobs that are not over."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.tables import Job, Task

PREFIX = "archives/"
"""Of their keys in the store."""
_OF = ((Task.archive_key, Task.sha256), (Job.archive_key, Job.archive_sha256))


def named(session: Session, keys: Collection[str]) -> set[str]:
    """Those of `keys` (at most some hundreds) that a task or a job names."""
    found: set[str] = set()
    for key, _ in _OF:
        found.update(one for one in session.scalars(select(key).where(key.in_(keys))) if one)
    return found


def sha256_of(session: Session, archive: str) -> str | None:
    """The digest of the archive's bytes as it was uploaded; None: nothing names it."""
    for key, sha256 in _OF:
        found = session.scalar(select(sha256).where(key == archive).limit(1))
        if found is not None:
            return found
    return None


def after(session: Session, cursor: str, prefix: str, limit: int) -> list[tuple[str, str]]:
    """(key, digest) of the next archives in use after the key `cursor` under a prefix, in order."""
    found: set[tuple[str, str]] = set()
    for key, sha256 in _OF:
        query = select(key, sha256).where(key.is_not(None), key > cursor, key.startswith(prefix))
        rows = session.execute(query.distinct().order_by(key).limit(limit))
        found.update((str(one), str(digest)) for one, digest in rows)
    return sorted(found)[:limit]
