"""What versions answered on held-out images: stored before the publishing transaction, named in it.

Besides those of the cells that a job measured there are the parent's on all its tasks, since the job asks it again:
they fill cells that have none, such as those from before answers were kept.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Job, Model, Result, Task
from core.protocol.job_result import JobResult, Measured
from core.store import Blobs
from core.work.fence import Claim
from core.work.result import ResultFolder


@dataclass(frozen=True)
class Stored:
    """A blob of answers."""

    sha256: str
    bytes: int


Kept = Mapping[tuple[Measured, int], Stored]
"""By version and task."""


def store(db: Database, blobs: Blobs, claim: Claim, found: ResultFolder[JobResult]) -> Kept:
    """Store the answers of a result that no cell has yet."""
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        older = {"base": 0, "parent": job.parent_version or 0}
        query = select(Result.version, Result.task).where(
            Result.model_id == job.model_id,
            Result.version.in_(set(older.values())),
            Result.answers.is_not(None),
        )
        there = {(version, task) for version, task in session.execute(query)}
    stored: dict[tuple[Measured, int], Stored] = {}
    for file in found.document.answers:
        if (older.get(file.version), file.task) not in there:
            stored[file.version, file.task] = Stored(*blobs.put_file(found.folder / file.file))
    return stored


def again(blobs: Blobs, kept: Kept, found: ResultFolder[JobResult]) -> None:
    """Store once more what was deleted as unused since; under the lock on references."""
    paths = {(file.version, file.task): found.folder / file.file for file in found.document.answers}
    for key, stored in kept.items():
        if not blobs.has(stored.sha256):
            blobs.put_file(paths[key])


def without(session: Session, model: Model, kept: Kept) -> Kept:
    """Those of tasks whose held-out images are still there: answers are kept as long."""
    gone = Task.data_deleted_at.is_not(None) | Task.held_out_deleted_at.is_not(None)
    query = select(Task.number).where(Task.model_id == model.id, gone)
    tasks = set(session.scalars(query))
    return {key: stored for key, stored in kept.items() if key[1] not in tasks}


def fill(session: Session, model: Model, parent: int, kept: Kept, found: JobResult) -> None:
    """Give the parent's cells that have no answers what it answered now, where the count is the same as then."""
    new = {cell.task: cell.correct for cell in found.results if cell.version == "new"}
    for (version, task), stored in kept.items():
        change = (found.changes or {}).get(str(task))
        if version != "parent" or change is None or task not in new:
            continue
        session.execute(
            update(Result)
            .where(
                *(Result.model_id == model.id, Result.version == parent, Result.task == task),
                *(Result.answers.is_(None), Result.total == change.total),
                Result.correct == new[task] - change.improved + change.regressed,
            )
            .values(answers=stored.sha256, answers_bytes=stored.bytes)
        )


def new_bytes(session: Session, model: Model, kept: Kept) -> int:
    """Bytes of those that the model does not have yet; before they are named."""
    sizes = {stored.sha256: stored.bytes for stored in kept.values()}
    query = select(Result.answers).where(Result.model_id == model.id, Result.answers.is_not(None))
    known: Collection[str | None] = set(session.scalars(query))
    return sum(size for sha256, size in sizes.items() if sha256 not in known)
