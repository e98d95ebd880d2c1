"""Marks of stored objects that are damaged or missing, and the errors about them.

A mark is a row with the object's key. While it exists, the object is not used for any response. It
is removed when sound bytes are stored under the key again, or when the scrub (`core.upkeep.scrub`)
finds them there. Downloads made from a marked object are deleted, and can be made again once the
object is sound.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import structlog
from sqlalchemy import func, or_, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.tables import (
    ExportedDownload,
    Job,
    Model,
    StoredObjectDamageMark,
    Task,
    UploadedBase,
    Version,
    VersionPart,
    VersionTaskResult,
)
from core.errors import StoredObjectDamaged

log = structlog.get_logger(__name__)

Kind = Literal["missing", "digest"]
_BLOBS = "blobs/"


def mark_object_damaged_and_delete_downloads(
    session: Session, key: str, kind: Kind, tag: str, now: float
) -> list[str]:
    """Mark a stored object as damaged or missing, and delete the downloads that depend on it.

    Args:
        key: the object's store key.
        kind: `missing`, or `digest` if the bytes do not match the name.
        tag: `ObjectInfo.tag` of the object as it was read; a different tag is a reason to check it
            again.
        now: time of the discovery, in seconds since 1970.

    Returns:
        Digests of the deleted downloads; blobs that are no longer referenced can be removed at
            once.
    """
    row = session.get(StoredObjectDamageMark, key)
    if row is None:
        session.add(StoredObjectDamageMark(key=key, kind=kind, tag=tag, found_at=now))
        log.error("a stored object is damaged", object=key, kind=kind)
    else:
        row.kind, row.tag = kind, tag
    session.flush()
    # Downloads are made of blobs alone; an archive is in none.
    if not key.startswith(_BLOBS):
        return []
    digest = _parse_digest_from_key(key)
    holders = select(VersionPart.version_id).where(VersionPart.sha256 == digest)
    query = select(ExportedDownload).where(
        or_(ExportedDownload.sha256 == digest, ExportedDownload.version_id.in_(holders))
    )
    exports = list(session.scalars(query))
    for export in exports:
        session.delete(export)
    session.flush()
    return [export.sha256 for export in exports]


class DatabaseDamageMarks:
    """Marks of damaged blobs, stored in the database, for `core.storage.Blobs`.

    Each call is a transaction.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def is_marked(self, key: str) -> bool:
        """Return True if the stored object is marked as damaged."""
        with self._db.read() as session:
            return session.get(StoredObjectDamageMark, key) is not None

    def mark_damaged(self, key: str) -> None:
        """Mark an object that proved damaged during use; if the database fails, only log it."""
        try:
            with self._db.write() as session:
                # An empty tag differs from that of any stored object, so that the scrub hashes it
                # again.
                mark_object_damaged_and_delete_downloads(
                    session, key, "digest", "", self._db.now(session)
                )
        except IntegrityError:
            pass  # another process marked it at the same moment
        except SQLAlchemyError as error:
            log.error(
                "a damaged object could not be marked", object=key, error=type(error).__name__
            )

    def remove_mark(self, key: str) -> None:
        """Remove an object's mark of damage, after sound bytes were stored."""
        with self._db.write() as session:
            remove_damage_marks_of_keys(session, [key])


def remove_damage_marks_of_keys(session: Session, keys: Iterable[str]) -> int:
    """Remove marks of damage from objects that are sound again or no longer referenced; return
    their number.
    """
    sorted_keys = sorted(set(keys))
    query = (
        select(StoredObjectDamageMark)
        .where(StoredObjectDamageMark.key.in_(sorted_keys))
        .order_by(StoredObjectDamageMark.key)
    )
    rows = list(session.scalars(query)) if sorted_keys else []
    for row in rows:
        session.delete(row)
        log.info("a damaged object is sound again, or needed no more", object=row.key)
    return len(rows)


def list_damage_marks(session: Session, limit: int) -> list[StoredObjectDamageMark]:
    """Return at most `limit` marks of damaged objects, ordered by key."""
    return list(
        session.scalars(
            select(StoredObjectDamageMark).order_by(StoredObjectDamageMark.key).limit(limit)
        )
    )


def count_damage_marks(session: Session) -> int:
    """Return the number of objects marked as damaged."""
    return session.scalar(select(func.count()).select_from(StoredObjectDamageMark)) or 0


def require_undamaged_version_parts(
    session: Session, version: Version, keys: Mapping[str, str]
) -> None:
    """Raise an error if a part of a version is marked as damaged.

    Args:
        keys: store key of each part → the part's name.

    Raises:
        StoredObjectDamaged: a part is marked. The message names it and says what to do.
    """
    query = (
        select(StoredObjectDamageMark.key)
        .where(StoredObjectDamageMark.key.in_(sorted(keys)))
        .order_by(StoredObjectDamageMark.key)
        .limit(1)
    )
    marked_key = session.scalar(query)
    if marked_key is not None:
        raise _build_damaged_part_error(session, version, keys[marked_key], marked_key)


def require_undamaged_model_objects(session: Session, model_id: str, keys: Iterable[str]) -> None:
    """Raise an error if one of a model's objects is marked as damaged.

    Raises:
        StoredObjectDamaged: an object is marked. The message describes it and says what to do.
    """
    query = (
        select(StoredObjectDamageMark.key)
        .where(StoredObjectDamageMark.key.in_(sorted(set(keys))))
        .order_by(StoredObjectDamageMark.key)
        .limit(1)
    )
    marked_key = session.scalar(query)
    if marked_key is not None:
        error = StoredObjectDamaged(
            f"The stored object {marked_key} is damaged.", extra={"object": marked_key}
        )
        raise reword_damaged_object_error(session, model_id, error)


def find_digests_marked_damaged(session: Session, digests: Collection[str]) -> set[str]:
    """Return digests of a model's blobs that are marked as damaged, so that a job can avoid them."""
    keys = {_BLOBS + f"{digest[:2]}/{digest}" for digest in digests}
    return {
        _parse_digest_from_key(key)
        for key in session.scalars(
            select(StoredObjectDamageMark.key).where(StoredObjectDamageMark.key.in_(sorted(keys)))
        )
    }


def reword_damaged_object_error(
    session: Session, model_id: str, error: StoredObjectDamaged
) -> StoredObjectDamaged:
    """Return an error about a damaged object, reworded in terms of the model that has it.

    The error is returned unchanged if the model does not have the object.
    """
    key = str(error.extra.get("object", ""))
    # The error was explained before, by an inner block.
    if "part" in error.extra or not key:
        return error
    query = select(Version, VersionPart.name).join(
        VersionPart, VersionPart.version_id == Version.id
    )
    # The concatenation keeps the planner from the index of digests: a base may be a part of
    # thousands of models (`core.retention.references.build_digest_expression_without_index`).
    query = query.where(
        Version.model_id == model_id, VersionPart.sha256 + "" == _parse_digest_from_key(key)
    )
    part = session.execute(query.order_by(Version.number).limit(1)).first()
    if part is not None:
        return _build_damaged_part_error(session, part[0], part[1], key)
    digest = _parse_digest_from_key(key)
    blobs = (
        *(Task.train_sha256, Task.held_out_sha256, Task.traces_sha256),
        *(Task.features_sha256, Task.selection_sha256),
    )
    of_task = or_(Task.archive_key == key, *(column == digest for column in blobs))
    results = select(VersionTaskResult.version, VersionTaskResult.task).where(
        VersionTaskResult.model_id == model_id, VersionTaskResult.answers == digest
    )
    result = session.execute(results.order_by(VersionTaskResult.version).limit(1)).first()
    if result is not None:
        return StoredObjectDamaged(
            f"What version {result.version} answered on task {result.task} is damaged: its stored "
            f"bytes are not those that were measured. Put the object {key} back from a backup, or "
            "compare other versions.",
            extra={"object": key, "version": result.version, "task": result.task},
        )
    task = session.scalar(select(Task.number).where(Task.model_id == model_id, of_task).limit(1))
    if task is None:
        job = session.scalar(
            select(Job.id).where(Job.model_id == model_id, Job.archive_key == key).limit(1)
        )
        return error if job is None else _build_damaged_upload_error(key, job)
    return StoredObjectDamaged(
        f"A file of task {task} is damaged: its stored bytes are not those that were uploaded. To "
        f"mend it, put the object {key} back from a backup and retry the job, or send the batch "
        f"again.",
        extra={"object": key, "task": task},
    )


def _build_damaged_upload_error(key: str, job: str) -> StoredObjectDamaged:
    return StoredObjectDamaged(
        f"The upload of job {job} is damaged: its stored bytes are not those that were sent. Send "
        f"it again.",
        extra={"object": key, "job": job},
    )


@contextmanager
def reword_damage_errors_of_model(db: Database, model_id: str) -> Iterator[None]:
    """Reword errors about damaged objects, raised while a model's files are used.

    Raises:
        StoredObjectDamaged: a stored object is damaged or missing.
    """
    try:
        yield
    except StoredObjectDamaged as error:
        with db.read() as session:
            raise reword_damaged_object_error(session, model_id, error) from error


def _build_damaged_part_error(
    session: Session, version: Version, name: str, key: str
) -> StoredObjectDamaged:
    owner = select(Model.owner_id).where(Model.id == version.model_id).scalar_subquery()
    # Of equal bases, only the owner's own: advice must not name what belongs to others.
    owner_bases = select(UploadedBase.id).where(
        UploadedBase.sha256 == _parse_digest_from_key(key), UploadedBase.owner_id == owner
    )
    base = session.scalar(owner_bases.order_by(UploadedBase.id).limit(1))
    ways = [f"put the object {key} back from a backup"]
    if base is not None:
        ways.append(f"upload the base {base} again (POST /v1/bases)")
    learned = _find_first_version_with_blob(session, version, key)
    if learned is not None:
        ways.append(
            f"roll production back to a version before version {learned[0]} and learn task "
            f"{learned[1]} again (POST /v1/models/{version.model_id}/tasks/{learned[1]}/relearn, "
            f"or its batch uploaded again)"
        )
    problem = (
        f"Part {name!r} of version {version.number} is damaged: its stored bytes are not "
        f"those that were learned."
    )
    return StoredObjectDamaged(
        f"{problem} To mend it, {', or '.join(ways)}. It is noticed within a minute or two.",
        extra={"object": key, "part": name, "version": version.number},
    )


def _find_first_version_with_blob(
    session: Session, version: Version, key: str
) -> tuple[int, int] | None:
    """Return the model's first version that has a blob, and the task that it learned, or None.

    None also stands for version 0, which learned no task.
    """
    query = select(Version.number, Version.task_number).join(
        VersionPart, VersionPart.version_id == Version.id
    )
    # The concatenation as in `reword_damaged_object_error`.
    query = query.where(
        Version.model_id == version.model_id, VersionPart.sha256 + "" == _parse_digest_from_key(key)
    )
    first_version = session.execute(query.order_by(Version.number).limit(1)).first()
    return (
        None
        if first_version is None or first_version[1] is None
        else (first_version[0], first_version[1])
    )


def _parse_digest_from_key(key: str) -> str:
    return key.rpartition("/")[2]
