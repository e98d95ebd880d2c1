"""How long a task's files are kept, and the deleting itself.

A file is first marked as deleted in its row; from then on nothing refers to it. Its blob goes when no
other row names the same bytes. A crash in between leaves an unused blob, which the sweep removes.
"""

from dataclasses import dataclass

from core.db import references
from core.db.jobs import held_for_data
from core.db.session import Database
from core.db.states import UNFINISHED, State
from core.db.tables import Job, Model, Task
from core.failpoints import hit
from core.store import Blobs

DAY_S = 86_400.0
COUNTS = "counts"
"""A model's `held_out` setting: keep only the counts, delete the images once they are measured."""


@dataclass(frozen=True)
class Due:
    """Which of a task's files may go now."""

    archive: bool = False
    train: bool = False
    held_out: bool = False


def due(model: Model, task: Task, jobs: list[Job], published: bool, now: float, failed_days: float) -> Due:
    """Decide for one task.

    The training part waits for the day that the task names (`train_until`), so that what the line lacks can be learned
    again; one of which no version was ever settled waits `failed_days` for a retry of its job.

    Args:
        jobs: all jobs of the task.
        published: whether a version that learned it passed its gate.
        now: seconds since 1970 by the database's clock.
        failed_days: how long data of a failed or cancelled attempt waits for a retry.
    """
    if any(State(job.state) in UNFINISHED for job in jobs):
        return Due(archive=task.train_sha256 is not None)
    if model.deleted_at is not None:
        return Due(archive=True, train=True, held_out=True)
    states = {State(job.state) for job in jobs}
    if task.stops:
        return Due(archive=task.train_sha256 is not None or states == {State.REJECTED})
    ended = max((job.finished_at or job.created_at for job in jobs), default=task.created_at)
    old = now - ended > failed_days * DAY_S
    counts = model.held_out == COUNTS
    if State.SUCCEEDED in states or published:
        over = old if task.train_until is None else now >= task.train_until
        train = over and not model.keep_training_data
        # What was held is measured again when it is learned again.
        return Due(archive=True, train=train, held_out=counts and (published or over))
    # What a person's recipe held is waited for like a failed one: he may retry it.
    held_back = any(map(held_for_data, jobs))
    if held_back or states & {State.FAILED, State.CANCELLED}:
        gone = old and not model.keep_training_data
        return Due(archive=old or task.train_sha256 is not None, train=gone, held_out=gone)
    rejected = not model.keep_training_data
    return Due(archive=True, train=rejected, held_out=rejected)


def mark(model: Model, task: Task, *, published: bool, now: float) -> None:
    """At publish: mark what need not be kept, in the publishing transaction."""
    if not published:
        return
    spent = task.train_until is not None and task.train_until <= now
    if spent and not model.keep_training_data and task.train_deleted_at is None:
        task.train_deleted_at = now
    if model.held_out == COUNTS and task.held_out_deleted_at is None:
        task.held_out_deleted_at = now


def drop_task_blobs(db: Database, blobs: Blobs, task_id: str) -> None:
    """Delete the blobs of a task's files that are marked as deleted and not used otherwise."""
    with db.read() as session:
        task = session.get_one(Task, task_id)
        digests = []
        if task.train_sha256 is not None and task.train_deleted_at is not None:
            digests.append(task.train_sha256)
        if task.held_out_sha256 is not None and task.held_out_deleted_at is not None:
            digests.append(task.held_out_sha256)
        if task.traces_sha256 is not None and task.held_out_deleted_at is not None:
            digests.append(task.traces_sha256)
        if task.features_sha256 is not None and task.held_out_deleted_at is not None:
            digests.append(task.features_sha256)
    drop(db, blobs, digests)


def drop(db: Database, blobs: Blobs, digests: list[str]) -> int:
    """Delete those of the blobs that nothing refers to; return how many.

    Inside a transaction that keeps new references out: see `core.db.references`.
    """
    if not digests:
        return 0
    with db.write() as session:
        references.own(session)
        unused = sorted(set(digests) - references.used(session, digests))
        for sha256 in unused:
            blobs.delete(sha256)
        hit("sweep-uncommitted")
        return len(unused)
