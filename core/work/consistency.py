"""Whether database and store agree, in both directions; and the repair of what can be repaired safely.

Rows that name an object which is missing, has another size, or (on request) another digest; objects that nothing
names, and whatever else a sweep should have removed a day ago; leases that ran out and nobody took back. Beside a
running service: what looks wrong is looked at again, row and object, before a report, and objects may vanish
meanwhile. A part of a version, a data set or an upload is never touched unless this machine has a sound copy:
it is named, for a restore from a backup.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from core import damage
from core.db import archives, chunks, references
from core.db import jobs as job_rows
from core.db.session import Database
from core.db.states import LEASED
from core.db.tables import Base, Chunk, Export, Job, Model, Part, Result, Task, Version
from core.errors import StoreCorrupt
from core.settings import Settings
from core.store import Blobs, Store
from core.work import claim as claims
from core.work import sweep
from core.work.retention import DAY_S
from core.work.sweep_dry_run import dry_run

LATE_S = DAY_S
"""What a sweep should have removed so long ago counts as drift; before that it is only waiting its turn."""
LEASE_S = 60.0
"""A lease that ran out so long ago should have been taken back: every worker looks every few seconds."""
_PREFIXES = ("anytime/", archives.PREFIX, "blobs/", "snapshots/", "sweeps/", chunks.PREFIX)
_ROWS = 1000
_MARKED = 10_000

Kind = Literal["missing", "size", "digest", "overdue", "foreign", "lease"]


@dataclass(frozen=True)
class Drift:
    """One thing in which database and store differ, or which should not be there any more.

    Attributes:
        kind: `missing`, `size`, `digest`: a row names an object that is not there, or not as it should be;
            `overdue`: an object or rows that a sweep should have removed; `foreign`: an object that is not
            the service's; `lease`: of a job whose worker is gone.
        object: key in the store, rows of a table, or a job.
        detail: who names it, or why it should not be there.
        bytes: of the object, as the row says it or as it is stored.
    """

    kind: Kind
    object: str
    detail: str
    bytes: int


@dataclass(frozen=True)
class Named:
    """An object as a row names it: its key, size in bytes (None: not known), digest, and who names it."""

    key: str
    size: int | None
    sha256: str | None
    by: str


def named(db: Database) -> Iterator[Named]:
    """Every object that a row names; one that several rows name comes several times."""
    with db.read() as session:
        yield from _named_blobs(session)
        archives = select(Task.archive_key, Task.bytes, Task.sha256, Task.model_id, Task.number)
        query = archives.where(Task.archive_key.is_not(None)).execution_options(yield_per=_ROWS)
        for key, size, sha256, model, number in session.execute(query):
            yield Named(str(key), size, sha256, f"archive of task {number} of {model}")
        own = (Job.archive_key, Job.archive_bytes, Job.archive_sha256, Job.id)
        uploads = select(*own).where(Job.archive_key.is_not(None)).execution_options(yield_per=_ROWS)
        for row in session.execute(uploads):
            yield Named(str(row.archive_key), row.archive_bytes, row.archive_sha256, f"archive of {row.id}")
        pieces = select(Chunk.key, Chunk.bytes, Chunk.sha256, Chunk.upload_id, Chunk.offset)
        for key, size, sha256, upload, at in session.execute(pieces.execution_options(yield_per=_ROWS)):
            yield Named(key, size, sha256, f"piece of {upload} from byte {at} on")
        for kind in ("snapshot", "anytime"):
            state = getattr(Job, kind)
            states = select(Job.id, state).where(state.is_not(None)).execution_options(yield_per=_ROWS)
            for job, value in session.execute(states):
                for name, (sha256, size) in value.files.items():
                    yield Named(value.key + name, size, sha256, f"{kind} of {job}")


def _named_blobs(session: Session) -> Iterator[Named]:
    versions = (Version.number, Version.model_id)
    parts = (
        select(Part.sha256, Part.bytes, Part.name, *versions).join(Version).where(Part.deleted_at.is_(None))
    )
    for sha256, size, name, number, model in session.execute(parts.execution_options(yield_per=_ROWS)):
        yield Named(Blobs.key(sha256), size, sha256, f"part {name} of version {number} of {model}")
    exports = select(Export.sha256, Export.bytes, *versions).join(Version)
    for sha256, size, number, model in session.execute(exports.execution_options(yield_per=_ROWS)):
        yield Named(Blobs.key(sha256), size, sha256, f"download of version {number} of {model}")
    bases = select(Base.sha256, Base.bytes, Base.id).execution_options(yield_per=_ROWS)
    for sha256, size, base in session.execute(bases):
        yield Named(Blobs.key(sha256), size, sha256, base)
    totals = select(Model.totals_sha256, Model.totals_bytes, Model.id).where(Model.totals_sha256.is_not(None))
    for totals_sha256, totals_bytes, model in session.execute(totals.execution_options(yield_per=_ROWS)):
        yield Named(Blobs.key(str(totals_sha256)), totals_bytes, totals_sha256, f"totals of {model}")
    answers = select(Result.answers, Result.answers_bytes, Result.version, Result.task, Result.model_id)
    kept = answers.where(Result.answers.is_not(None)).execution_options(yield_per=_ROWS)
    for answer in session.execute(kept):
        by = f"answers of version {answer.version} on task {answer.task} of {answer.model_id}"
        yield Named(Blobs.key(str(answer.answers)), answer.answers_bytes, answer.answers, by)
    for column, deleted, what in (
        (Task.train_sha256, Task.train_deleted_at, "training part"),
        (Task.held_out_sha256, Task.held_out_deleted_at, "held-out part"),
        (Task.traces_sha256, Task.held_out_deleted_at, "hashes"),
        (Task.features_sha256, Task.held_out_deleted_at, "features of the held-out part"),
    ):
        tasks = select(column, Task.number, Task.model_id).where(column.is_not(None), deleted.is_(None))
        for digest, number, model in session.execute(tasks.execution_options(yield_per=_ROWS)):
            yield Named(Blobs.key(str(digest)), None, digest, f"{what} of task {number} of {model}")


def check(db: Database, store: Store, settings: Settings, *, verify: bool = False) -> list[Drift]:
    """Everything in which database and store differ; nothing is changed.

    Args:
        verify: also read every named object and compare its digest. Without it, those are reported that the scrub or a
            request found damaged, and that nobody has seen sound since.
    """
    return [
        *_rows_without_objects(db, store, verify),
        *_what_should_be_gone(db, store, settings),
        *_foreign(store),
        *_leases(db),
    ]


def repair(db: Database, store: Store, blobs: Blobs, settings: Settings, found: list[Drift]) -> None:
    """Repair what is safe to repair: afterwards `check` reports what is left.

    A missing or damaged blob comes back from this machine's cache, if its copy is sound; a download that nothing
    else names is forgotten (the next request makes it again); a damaged snapshot or best state is forgotten (its
    job starts anew); a sweep removes what is overdue; jobs are taken from workers that are gone. Repeating it
    changes nothing more. What is left is marked, so that nothing is answered with it; other marks go.
    """
    for drift in found:
        if drift.kind not in ("missing", "size", "digest"):
            continue
        area, _, rest = drift.object.partition("/")
        if area == "blobs":
            _repair_blob(db, store, blobs, rest.rpartition("/")[2])
            _remark(db, store, drift.object)
        elif area in ("snapshots", "anytime"):
            _forget_state(db, drift.object, "snapshot" if area == "snapshots" else "anytime")
    with db.read() as session:
        marks = [row.key for row in damage.marked(session, _MARKED)]
    for key in marks:
        _remark(db, store, key)
    if any(drift.kind == "lease" for drift in found):
        claims.reap(db)
    sweep.sweep(db, store, blobs, settings, whole=True)


def _rows_without_objects(db: Database, store: Store, verify: bool) -> Iterator[Drift]:
    stored = {info.key: info.size for info in store.list("")}
    with db.read() as session:
        marked = {row.key for row in damage.marked(session, _MARKED)}
    reported: set[str] = set()
    sound: set[str] = set()
    for wanted in list(named(db)):  # no transaction stays open while objects are read
        if wanted.key in reported:
            continue
        kind: Kind | None = None
        if wanted.key not in stored:
            kind = "missing"
        elif wanted.size is not None and stored[wanted.key] != wanted.size:
            kind = "size"
        elif (verify or wanted.key in marked) and wanted.key not in sound:
            kind = None if _is_sound(store, wanted) else "digest"
            sound.add(wanted.key)
        if kind is not None and _still(db, store, wanted, kind):
            reported.add(wanted.key)
            yield Drift(kind, wanted.key, wanted.by, wanted.size or stored.get(wanted.key, 0))


def _still(db: Database, store: Store, wanted: Named, kind: Kind) -> bool:
    """Whether the row still names the object and the object is still not as it should be."""
    with db.read() as session:
        if not _is_named(session, wanted):
            return False
    info = store.stat(wanted.key)
    if kind == "missing":
        return info is None
    if kind == "size":
        return info is None or info.size != wanted.size
    return not _is_sound(store, wanted)


def _is_named(session: Session, wanted: Named) -> bool:
    area, _, rest = wanted.key.partition("/")
    if area == "blobs":
        return bool(references.used(session, [rest.rpartition("/")[2]]))
    if area == "archives":
        return archives.sha256_of(session, wanted.key) is not None
    if wanted.key.startswith(chunks.PREFIX):
        return bool(chunks.named(session, [wanted.key]))
    job = session.get(Job, rest.partition("/")[0])
    if job is None:
        return False
    states = [state for state in (job.snapshot, job.anytime) if state is not None]
    return any(wanted.key in state.keys for state in states)


def _is_sound(store: Store, wanted: Named) -> bool:
    digest = hashlib.sha256()
    try:
        for chunk in store.read(wanted.key):
            digest.update(chunk)
    except StoreCorrupt:
        return False
    return wanted.sha256 in (None, digest.hexdigest())


def _what_should_be_gone(db: Database, store: Store, settings: Settings) -> Iterator[Drift]:
    with db.read() as session:
        limit = db.now(session) - LATE_S
    for removal in dry_run(db, store, settings, late_s=LATE_S):
        if removal.modified < limit and (removal.modified == 0.0 or store.stat(removal.object) is not None):
            yield Drift("overdue", removal.object, removal.reason, removal.bytes)


def _foreign(store: Store) -> Iterator[Drift]:
    for info in store.list(""):
        if not info.key.startswith(_PREFIXES):
            yield Drift("foreign", info.key, "no object of the service has such a key", info.size)


def _leases(db: Database) -> Iterator[Drift]:
    with db.read() as session:
        late = Job.lease_until < db.now(session) - LEASE_S
        query = select(Job.id, Job.state, Job.worker).where(Job.state.in_(sorted(LEASED)), late)
        for job, state, worker in session.execute(query):
            yield Drift("lease", job, f"{state}, but its worker {worker} stopped reporting", 0)


def _repair_blob(db: Database, store: Store, blobs: Blobs, sha256: str) -> None:
    key = Blobs.key(sha256)
    copy = blobs.sound_copy(sha256)
    with db.write() as session:
        references.own(session)
        if copy is not None and references.used(session, [sha256]):
            store.put_file(key, copy)
            return
        info = store.stat(key)
        if info is not None and _is_sound(store, Named(key, None, sha256, "")):
            return  # it is there again, and a wrong size in a row is not ours to judge
        session.execute(delete(Export).where(Export.sha256 == sha256))
        if not references.used(session, [sha256]):
            blobs.delete(sha256)


def _remark(db: Database, store: Store, key: str) -> None:
    """Mark a blob or archive that is still not what its name says, or take its mark away."""
    info = store.stat(key)
    with db.read() as session:
        digest = key.rpartition("/")[2]
        if key.startswith(archives.PREFIX):
            digest = archives.sha256_of(session, key) or ""
    sound = info is not None and _is_sound(store, Named(key, None, digest, ""))
    with db.write() as session:
        if sound or not _is_named(session, Named(key, None, digest, "")):
            damage.clear(session, [key])
        else:
            kind: damage.Kind = "missing" if info is None else "digest"
            damage.mark(session, key, kind, "" if info is None else info.tag, db.now(session))


def _forget_state(db: Database, key: str, kind: Literal["snapshot", "anytime"]) -> None:
    """Take a state off a job that no worker has; one that runs replaces it by itself."""
    with db.write() as session:
        job = job_rows.locked(session, key.split("/")[1])
        state = getattr(job, kind, None)
        if job is not None and state is not None and job.state not in LEASED and key.startswith(state.key):
            setattr(job, kind, None)
