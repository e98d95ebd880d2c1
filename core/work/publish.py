"""A finished job becomes a version: blobs first, then one transaction.

Parts are stored under their digest before the transaction, so a crash until there leaves only blobs
that the sweep removes. The transaction checks the fence and writes everything at once: version, parts,
measurements, gate verdict, aliases with history, event, audit row, the job's end. A retry after it
finds the version of the job and returns its number. Version numbers come from the same transaction,
so none is ever skipped.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import references, stored_bytes
from core.db.jobs import move
from core.db.session import Database
from core.db.states import Action
from core.db.tables import Alias, AliasMove, Audit, Job, Model, Part, Task, Version
from core.db.tables import Result as ResultRow
from core.ids import new_id
from core.kill_points import reached
from core.matrix import Row
from core.store import Blobs, Store
from core.work import anytime, progress, retention, snapshots
from core.work.ancestors import ancestors
from core.work.fence import Claim, hold
from core.work.gate import verdict
from core.work.manifest import manifest
from core.work.result import JobResult, PartFile, read


@dataclass(frozen=True)
class _Stored:
    file: PartFile
    sha256: str
    bytes: int

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.file.name,
            "type": self.file.type,
            "sha256": self.sha256,
            "bytes": self.bytes,
        }


def publish(db: Database, store: Store, claim: Claim, result: Path) -> int:
    """Publish the result folder of a claimed job; return the version's number. Idempotent.

    Raises:
        LeaseLost: the claim is not the job's any more; nothing was published.
        WrongState: a stop was asked for meanwhile; nothing was published. The caller calls
            `claim.stopped`.
        ValueError: the result is incomplete (a fault of the learning code).
    """
    done = _published(db, claim)
    if done is None:
        found = read(result)
        blobs = Blobs(store, result / "cache")
        stored = []
        for file in found.parts:
            stored.append(_Stored(file, *blobs.put_file(file.path)))
            reached("part-stored")
        reached("publish-stored")
        done = _transaction(db, blobs, claim, found, stored)
        reached("publish-committed")
    _clean(db, store, claim)
    reached("publish-cleaned")
    return done


def _published(db: Database, claim: Claim) -> int | None:
    with db.read() as session:
        return session.execute(
            select(Version.number).where(Version.job_id == claim.job_id)
        ).scalar_one_or_none()


def _transaction(db: Database, blobs: Blobs, claim: Claim, found: JobResult, stored: list[_Stored]) -> int:
    with db.write() as session:
        job = hold(session, claim)
        references.share(session)
        for part in stored:
            if not blobs.has(part.sha256):  # deleted as unused since we stored it
                blobs.put_file(part.file.path)
        model = session.get_one(Model, job.model_id, with_for_update=True, populate_existing=True)
        task = session.get_one(Task, job.task_id, with_for_update=True, populate_existing=True)
        now = db.now(session)
        number = model.next_version
        move(
            session,
            job,
            Action.PUBLISH,
            now,
            {"version": number, "warnings": found.warnings},
        )
        model.next_version = number + 1
        line = ancestors(session, model.id, claim.parent_version)
        found = found.without(_deleted(session, model))
        _measure(session, model, line, number, found)
        gate = _judge(session, model, job, line, number, task.number, found.predicted_rise)
        version = _version(session, model, task, job, line[0], number, found, stored, gate, now)
        if gate["passed"]:
            for alias in ("latest", "production"):
                _point(session, model.id, alias, number, now)
        job.version = number
        job.error = None
        job.snapshot = job.anytime = None
        for text in found.warnings:
            progress.log(session, job.id, "warning", text, now)
        task.warnings = [*task.warnings, *(text for text in found.warnings if text not in task.warnings)]
        retention.mark(model, task, published=bool(gate["passed"]), now=now)
        session.add(
            Audit(
                at=now,
                owner_id=job.owner_id,
                actor=None,
                action="version.publish",
                object=version.id,
                data={"model": model.id, "version": number, "status": version.status, "job": job.id},
            )
        )
        session.flush()
        stored_bytes.add(session, job.owner_id, version.bytes_new)
        reached("publish-uncommitted")
        return number


def _deleted(session: Session, model: Model) -> set[int]:
    """Tasks whose data was deleted, perhaps while the job ran: nothing new is told of them."""
    query = select(Task.number).where(Task.model_id == model.id, Task.data_deleted_at.is_not(None))
    return set(session.execute(query).scalars())


def _measure(session: Session, model: Model, line: list[Version], number: int, found: JobResult) -> None:
    """Write the measured cells; a cell that is there stays."""
    numbers = {"base": 0, "parent": line[-1].number, "new": number}
    known = select(ResultRow.version, ResultRow.task).where(ResultRow.model_id == model.id)
    there = {(version, task) for version, task in session.execute(known)}
    for cell in found.measured:
        key = (numbers[cell.version], cell.task)
        if key in there:
            continue
        there.add(key)
        session.add(
            ResultRow(
                model_id=model.id,
                version=key[0],
                task=key[1],
                correct=cell.correct,
                total=cell.total,
                per_class=cell.per_class,
            )
        )
    session.flush()


def _judge(
    session: Session,
    model: Model,
    job: Job,
    line: list[Version],
    number: int,
    task_number: int,
    predicted_rise: float | None,
) -> dict[str, Any]:
    """The verdict by the gate of the job: a change of the model's counts for later tasks."""
    rows = [Row(version.number, version.task_number, version.parent) for version in line]
    rows.append(Row(number, task_number, line[-1].number))
    query = select(ResultRow).where(
        ResultRow.model_id == model.id, ResultRow.version.in_([row.version for row in rows])
    )
    cells = {(r.version, r.task): (r.correct, r.total) for r in session.execute(query).scalars()}
    gate = model.gate if job.gate is None else job.gate
    return verdict(gate or {}, rows, cells, number, model.scenario, predicted_rise)


def _version(
    session: Session,
    model: Model,
    task: Task,
    job: Job,
    base: Version,
    number: int,
    found: JobResult,
    stored: list[_Stored],
    gate: dict[str, Any],
    now: float,
) -> Version:
    """Write the version and its parts."""
    sizes = {part.sha256: part.bytes for part in stored}
    known = set(
        session.execute(
            select(Part.sha256)
            .join(Version, Version.id == Part.version_id)
            .where(
                Version.model_id == model.id,
                references.by_model(Part.sha256).in_(sizes),
                Part.deleted_at.is_(None),
            )
        ).scalars()
    )
    version = Version(
        id=new_id("ver"),
        model_id=model.id,
        number=number,
        parent=job.parent_version,
        task_number=task.number,
        job_id=job.id,
        status="published" if gate["passed"] else "held",
        gate=gate,
        created_at=now,
        manifest=manifest(
            model, task, job, base, found.document, [part.describe() for part in stored], number
        ),
        bytes=sum(part.bytes for part in stored),
        bytes_new=sum(size for sha256, size in sizes.items() if sha256 not in known),
    )
    session.add(version)
    session.flush()  # before the rows that refer to it
    for position, part in enumerate(stored):
        session.add(
            Part(
                version_id=version.id,
                name=part.file.name,
                position=position,
                type=part.file.type,
                sha256=part.sha256,
                bytes=part.bytes,
            )
        )
    return version


def _point(session: Session, model_id: str, name: str, number: int, now: float) -> None:
    """Move an alias to the new version, with a row of history."""
    alias = session.get(Alias, (model_id, name), with_for_update=True)
    previous = None if alias is None else alias.version
    if alias is None:
        session.add(Alias(model_id=model_id, name=name, version=number, updated_at=now))
    else:
        alias.version, alias.updated_at = number, now
    session.add(
        AliasMove(model_id=model_id, alias=name, version=number, previous=previous, cause="publish", at=now)
    )


def _clean(db: Database, store: Store, claim: Claim) -> None:
    """Remove what the published job needs no more; whatever stops here, the sweep repeats it."""
    for prefix in (snapshots.prefix_of(claim.job_id), anytime.prefix_of(claim.job_id)):
        for info in list(store.list(prefix)):
            store.delete(info.key)
    retention.drop_task_blobs(db, Blobs(store, Path()), claim.task_id)
