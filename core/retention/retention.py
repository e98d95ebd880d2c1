"""Retention of a task's files, and their deletion; removal of objects that nothing refers to.

A file is first marked as deleted in its row; from then on nothing refers to it. Its blob is deleted
if no other row refers to the same bytes. A crash in between leaves an unused blob, which the sweep
removes.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from core.database.jobs import is_job_rejected_for_findings
from core.database.session import Database
from core.database.states import UNFINISHED, JobState
from core.database.tables import Job, Model, Task, TaskFileBeforeEdit
from core.failpoints import hit_failpoint
from core.retention import references
from core.storage import Blobs, ObjectStorage

DAY_S = 86_400.0
COUNTS = "counts"
"""Value of `held_out`: retain only counts, and delete images once they are measured."""
_BATCH = 200


@dataclass(frozen=True)
class DeletableTaskFiles:
    """Files of a task that may be deleted now: archive, training and held-out images, fingerprints."""

    archive: bool = False
    train: bool = False
    held_out: bool = False


def find_deletable_task_files(
    model: Model, task: Task, jobs: list[Job], published: bool, now: float, failed_days: float
) -> DeletableTaskFiles:
    """Decide which files of a task may be deleted now.

    The training images stay until the time that the task names (`train_until`), so that tasks that
    the lineage lacks can be learned again. If no version of the task was ever settled, they stay
    `failed_days` for a retry of its job.

    Args:
        jobs: all jobs of the task.
        published: True if a version that learned it passed its gate.
        now: seconds since 1970 by the database's clock.
        failed_days: days for which data of a failed or cancelled attempt stays for a retry.
    """
    # A decoded dataset replaces its archive, so even an open job no longer needs that.
    if any(JobState(job.state) in UNFINISHED for job in jobs):
        return DeletableTaskFiles(archive=task.train_sha256 is not None)
    if model.deleted_at is not None:
        return DeletableTaskFiles(archive=True, train=True, held_out=True)
    states = {JobState(job.state) for job in jobs}
    if task.stops:
        return DeletableTaskFiles(
            archive=task.train_sha256 is not None or states == {JobState.REJECTED}
        )
    ended = max((job.finished_at or job.created_at for job in jobs), default=task.created_at)
    old = now - ended > failed_days * DAY_S
    counts = model.held_out == COUNTS
    if JobState.SUCCEEDED in states or published:
        over = old if task.train_until is None else now >= task.train_until
        train = over and not model.keep_training_data
        # A held task is measured again when it is learned again, so its held-out images are still
        # needed.
        return DeletableTaskFiles(
            archive=True, train=train, held_out=counts and (published or over)
        )
    # A job that its recipe held back is treated like a failed one: a person may retry it.
    held_back = any(map(is_job_rejected_for_findings, jobs))
    if held_back or states & {JobState.FAILED, JobState.CANCELLED}:
        is_deletable = old and not model.keep_training_data
        return DeletableTaskFiles(
            archive=old or task.train_sha256 is not None, train=is_deletable, held_out=is_deletable
        )
    # A rejected batch cannot be retried, so nothing waits for its files.
    rejected = not model.keep_training_data
    return DeletableTaskFiles(archive=True, train=rejected, held_out=rejected)


def mark_unneeded_task_files(model: Model, task: Task, *, published: bool, now: float) -> None:
    """Mark a task's files that need not be retained as deleted, in the publishing transaction."""
    if not published:
        return
    spent = task.train_until is not None and task.train_until <= now
    if spent and not model.keep_training_data and task.train_deleted_at is None:
        task.train_deleted_at = now
    if model.held_out == COUNTS and task.held_out_deleted_at is None:
        task.held_out_deleted_at = now


def delete_blobs_of_deleted_task_files(db: Database, blobs: Blobs, task_id: str) -> None:
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
        if task.selection_sha256 is not None and task.held_out_deleted_at is not None:
            digests.append(task.selection_sha256)
    delete_unused_blobs(db, blobs, digests)


def delete_edit_undo_file_rows(session: Session, which: ColumnElement[bool]) -> set[str]:
    """Delete the rows of files that were retained to undo edits, and return the files' digests.

    Args:
        which: condition on `TaskFileBeforeEdit`.
    """
    rows = list(session.scalars(select(TaskFileBeforeEdit).where(which)))
    for row in rows:
        session.delete(row)
    return {row.sha256 for row in rows}


def delete_unused_blobs(db: Database, blobs: Blobs, digests: list[str]) -> int:
    """Delete the blobs in a list that no row refers to; return their number.

    The transaction keeps others from adding references meanwhile: see `core.retention.references`.
    """
    if not digests:
        return 0
    with db.write() as session:
        # The blobs are deleted inside the transaction: nobody can come to refer to one in between.
        references.lock_blob_references_exclusively(session)
        unused = sorted(set(digests) - references.find_digests_still_in_use(session, digests))
        for sha256 in unused:
            blobs.delete(sha256)
        hit_failpoint("sweep-uncommitted")
        return len(unused)


def delete_unreferenced_objects(
    db: Database,
    store: ObjectStorage,
    prefix: str,
    named: Callable[[Session, Collection[str]], set[str]],
    grace_days: float,
) -> None:
    """Delete stored objects below a key prefix that no row refers to.

    A process that died between store and database left them.

    Args:
        named: function that returns those of some keys that have a row.
        grace_days: minimum age in days, since a younger object may be about to get its row.
    """
    with db.read() as session:
        limit = db.now(session) - grace_days * DAY_S
    old = [info.key for info in store.list(prefix) if info.modified < limit]
    # The look-ups take some hundreds of keys at most.
    for start in range(0, len(old), _BATCH):
        batch = old[start : start + _BATCH]
        with db.read() as session:
            # Looked up after the listing: an object that got its row meanwhile is found to be in
            # use.
            named_keys = named(session, batch)
        for key in set(batch) - named_keys:
            store.delete(key)
