"""Archives in use: those of tasks that are not decoded yet, and those of unfinished jobs."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.database.tables import Job, Task

PREFIX = "archives/"
"""Prefix of the archives' keys in the store."""
# A batch belongs to its task until it is decoded, one that is only checked to its job.
_OF = ((Task.archive_key, Task.sha256), (Job.archive_key, Job.archive_sha256))


def find_archives_still_in_use(session: Session, keys: Collection[str]) -> set[str]:
    """Return which archive `keys` (at most some hundreds) a task or a job still refers to."""
    used_keys: set[str] = set()
    for key, _ in _OF:
        used_keys.update(one for one in session.scalars(select(key).where(key.in_(keys))) if one)
    return used_keys


def find_archive_digest(session: Session, archive: str) -> str | None:
    """Return the digest of an uploaded archive by its store key, or None if no row refers to it."""
    for key, sha256 in _OF:
        digest = session.scalar(select(sha256).where(key == archive).limit(1))
        if digest is not None:
            return digest
    return None


def list_next_archives_in_use(
    session: Session, cursor: str, prefix: str, limit: int
) -> list[tuple[str, str]]:
    """Return (key, digest) of the next archives that rows refer to, after `cursor`, in order."""
    archives: set[tuple[str, str]] = set()
    for key, sha256 in _OF:
        query = select(key, sha256).where(key.is_not(None), key > cursor, key.startswith(prefix))
        rows = session.execute(query.distinct().order_by(key).limit(limit))
        archives.update((str(one), str(digest)) for one, digest in rows)
    return sorted(archives)[:limit]
