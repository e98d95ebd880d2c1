"""Removal of uploads: those of a job once it has ended, and those not completed in time."""

from sqlalchemy import Select, or_, select

from core.database import jobs
from core.database.session import Database
from core.database.states import TERMINAL, JobState
from core.database.tables import Job, Upload
from core.storage import ObjectStorage
from core.uploads import chunks

_BATCH = 200
"""Number of uploads removed in one transaction: thousands may expire in one minute, and other
writers must get in between.
"""


def delete_archive_of_finished_job(db: Database, store: ObjectStorage, job_id: str) -> None:
    """Delete the archive that a finished job has used up, then its key in the job's row.

    After a crash in between, this can be repeated.
    """
    with db.write() as session:
        job = jobs.lock_job(session, job_id)
        if job is None or job.archive_key is None or JobState(job.state) not in TERMINAL:
            return
        # The object goes first: a crash in between leaves a key without an object, which is deleted
        # again.
        store.delete(job.archive_key)
        job.archive_key = None


def delete_archives_of_finished_jobs(db: Database, store: ObjectStorage) -> None:
    """Delete the archives of finished jobs that were not deleted when the jobs ended."""
    over = sorted(str(state) for state in TERMINAL)
    with db.read() as session:
        job_ids = list(
            session.scalars(select(Job.id).where(Job.archive_key.is_not(None), Job.state.in_(over)))
        )
    for job_id in job_ids:
        delete_archive_of_finished_job(db, store, job_id)


def remove_expired_uploads(db: Database, store: ObjectStorage) -> None:
    """Delete expired uploads that no request is writing to, with their stored pieces.

    Objects that a crash leaves have no row, so the sweep removes them.
    """
    while True:
        with db.read() as session:  # without an expired upload, no writer is kept waiting
            if not session.scalars(_build_expired_uploads_query(db.now(session), 1)).all():
                return
        with db.write() as session:
            # A locked row is just being taken by a request or another worker; the next round looks
            # again.
            query = _build_expired_uploads_query(db.now(session), _BATCH)
            ids = list(session.scalars(query.with_for_update(skip_locked=True)))
            keys = chunks.delete_rows_of_uploads(session, ids)
        for key in keys:
            store.delete(key)
        if len(ids) < _BATCH:
            return


def _build_expired_uploads_query(now: float, limit: int) -> Select[str]:
    """Return the query for expired uploads that no request is writing to."""
    free = or_(Upload.held_until.is_(None), Upload.held_until <= now)
    return (
        select(Upload.id)
        .where(Upload.expires_at <= now, free)
        .order_by(Upload.expires_at)
        .limit(limit)
    )
