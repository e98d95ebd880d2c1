"""Stored objects that were found damaged or missing, and what a person is told of them.

A mark is a row by the object's key. While it stands, nothing is answered with the object; it goes when sound bytes are
stored under the key again, or when the scrub (`core.work.scrub`) finds them there. Downloads that were made of a marked
object are forgotten, and made again once it is sound.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import structlog
from sqlalchemy import func, or_, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Base, Damage, Export, Job, Model, Part, Result, Task, Version
from core.errors import StoreCorrupt

log = structlog.get_logger(__name__)

Kind = Literal["missing", "digest"]
_BLOBS = "blobs/"


def mark(session: Session, key: str, kind: Kind, tag: str, now: float) -> list[str]:
    """Note that an object is not what its name says, and forget the downloads that are it or were made of it.

    Returns the digests of those: what nothing names any more may go at once.

    Args:
        tag: of the object as it was read (`ObjectInfo.tag`): another one is reason to look again.
    """
    row = session.get(Damage, key)
    if row is None:
        session.add(Damage(key=key, kind=kind, tag=tag, found_at=now))
        log.error("a stored object is damaged", object=key, kind=kind)
    else:
        row.kind, row.tag = kind, tag
    session.flush()
    if not key.startswith(_BLOBS):
        return []
    digest = _digest(key)
    holders = select(Part.version_id).where(Part.sha256 == digest)
    query = select(Export).where(or_(Export.sha256 == digest, Export.version_id.in_(holders)))
    exports = list(session.scalars(query))
    for export in exports:
        session.delete(export)
    session.flush()
    return [export.sha256 for export in exports]


class Marks:
    """What `core.store.Blobs` asks and tells of marks; each call is a transaction of its own."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def has(self, key: str) -> bool:
        """Whether the object is marked."""
        with self._db.read() as session:
            return session.get(Damage, key) is not None

    def add(self, key: str) -> None:
        """Mark an object that turned out damaged while it was used; without the database it is only logged."""
        try:
            with self._db.write() as session:
                mark(session, key, "digest", "", self._db.now(session))
        except IntegrityError:
            pass  # another process found it at the same moment
        except SQLAlchemyError as error:
            log.error("a damaged object could not be marked", object=key, error=type(error).__name__)

    def remove(self, key: str) -> None:
        """Sound bytes have just been stored."""
        with self._db.write() as session:
            clear(session, [key])


def clear(session: Session, keys: Iterable[str]) -> int:
    """Sound bytes are stored under these keys, or nothing names them any more; returns how many were marked."""
    wanted = sorted(set(keys))
    query = select(Damage).where(Damage.key.in_(wanted)).order_by(Damage.key)
    rows = list(session.scalars(query)) if wanted else []
    for row in rows:
        session.delete(row)
        log.info("a damaged object is sound again, or needed no more", object=row.key)
    return len(rows)


def marked(session: Session, limit: int) -> list[Damage]:
    """What is marked, by key."""
    return list(session.scalars(select(Damage).order_by(Damage.key).limit(limit)))


def count(session: Session) -> int:
    """How many objects are marked."""
    return session.scalar(select(func.count()).select_from(Damage)) or 0


def refuse(session: Session, version: Version, keys: Mapping[str, str]) -> None:
    """Refuse to use parts of a version that are marked.

    Args:
        keys: store key of each part, and the part's name.

    Raises:
        StoreCorrupt: one is; it says which and what to do.
    """
    query = select(Damage.key).where(Damage.key.in_(sorted(keys))).order_by(Damage.key).limit(1)
    found = session.scalar(query)
    if found is not None:
        raise _of_part(session, version, keys[found], found)


def refuse_any(session: Session, model_id: str, keys: Iterable[str]) -> None:
    """Refuse to work with objects of a model that are marked.

    Raises:
        StoreCorrupt: one is; it says what it is and what to do.
    """
    query = select(Damage.key).where(Damage.key.in_(sorted(set(keys)))).order_by(Damage.key).limit(1)
    found = session.scalar(query)
    if found is not None:
        error = StoreCorrupt(f"The stored object {found} is damaged.", extra={"object": found})
        raise explained(session, model_id, error)


def find_marked(session: Session, digests: Collection[str]) -> set[str]:
    """Return those of some blobs that are marked: what a job can do without it does not read."""
    keys = {_BLOBS + f"{digest[:2]}/{digest}" for digest in digests}
    return {_digest(key) for key in session.scalars(select(Damage.key).where(Damage.key.in_(sorted(keys))))}


def explained(session: Session, model_id: str, error: StoreCorrupt) -> StoreCorrupt:
    """The error about an object in the words of the model that has it; as it is where none has."""
    key = str(error.extra.get("object", ""))
    if "part" in error.extra or not key:
        return error
    query = select(Version, Part.name).join(Part, Part.version_id == Version.id)
    query = query.where(Version.model_id == model_id, Part.sha256 + "" == _digest(key))
    found = session.execute(query.order_by(Version.number).limit(1)).first()
    if found is not None:
        return _of_part(session, found[0], found[1], key)
    digest = _digest(key)
    blobs = (Task.train_sha256, Task.held_out_sha256, Task.traces_sha256, Task.features_sha256)
    of_task = or_(Task.archive_key == key, *(column == digest for column in blobs))
    said = select(Result.version, Result.task).where(Result.model_id == model_id, Result.answers == digest)
    answers = session.execute(said.order_by(Result.version).limit(1)).first()
    if answers is not None:
        return StoreCorrupt(
            f"What version {answers.version} answered on task {answers.task} is damaged: its stored bytes "
            f"are not those that were measured. Put the object {key} back from a backup, or compare other "
            "versions.",
            extra={"object": key, "version": answers.version, "task": answers.task},
        )
    task = session.scalar(select(Task.number).where(Task.model_id == model_id, of_task).limit(1))
    if task is None:
        job = session.scalar(select(Job.id).where(Job.model_id == model_id, Job.archive_key == key).limit(1))
        return error if job is None else _of_upload(key, job)
    return StoreCorrupt(
        f"A file of task {task} is damaged: its stored bytes are not those that were uploaded. To mend it, put the"
        f" object {key} back from a backup and retry the job, or upload the batch again.",
        extra={"object": key, "task": task},
    )


def _of_upload(key: str, job: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"The upload of job {job} is damaged: its stored bytes are not those that were sent. Send it again.",
        extra={"object": key, "job": job},
    )


@contextmanager
def explaining(db: Database, model_id: str) -> Iterator[None]:
    """Around the use of a model's files. Raises StoreCorrupt as `explained`."""
    try:
        yield
    except StoreCorrupt as error:
        with db.read() as session:
            raise explained(session, model_id, error) from error


def _of_part(session: Session, version: Version, name: str, key: str) -> StoreCorrupt:
    owner = select(Model.owner_id).where(Model.id == version.model_id).scalar_subquery()
    theirs = select(Base.id).where(Base.sha256 == _digest(key), Base.owner_id == owner)
    base = session.scalar(theirs.order_by(Base.id).limit(1))
    ways = [f"put the object {key} back from a backup"]
    if base is not None:
        ways.append(f"upload the base {base} again (POST /v1/bases)")
    learned = _learned_from(session, version, key)
    if learned is not None:
        ways.append(
            f"roll production back to a version before version {learned[0]} and learn task {learned[1]} again"
            f" (POST /v1/models/{version.model_id}/tasks/{learned[1]}/relearn, or its batch uploaded again)"
        )
    said = f"Part {name!r} of version {version.number} is damaged: its stored bytes are not those that were learned."
    return StoreCorrupt(
        f"{said} To mend it, {', or '.join(ways)}. It is noticed within a minute or two.",
        extra={"object": key, "part": name, "version": version.number},
    )


def _learned_from(session: Session, version: Version, key: str) -> tuple[int, int] | None:
    """The first version of the model that has the bytes, and the task that it learned; None: of version 0."""
    query = select(Version.number, Version.task_number).join(Part, Part.version_id == Version.id)
    query = query.where(Version.model_id == version.model_id, Part.sha256 + "" == _digest(key))
    found = session.execute(query.order_by(Version.number).limit(1)).first()
    return None if found is None or found[1] is None else (found[0], found[1])


def _digest(key: str) -> str:
    return key.rpartition("/")[2]
