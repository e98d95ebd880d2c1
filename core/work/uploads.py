"""Uploads that belong to a job: retained until the job has ended."""

from sqlalchemy import select

from core.db import jobs
from core.db.session import Database
from core.db.states import TERMINAL, State
from core.db.tables import Job
from core.store import Store


def forget(db: Database, store: Store, job_id: str) -> None:
    """Delete the upload of a finished job, then its key in the row.

    After a crash in between, this can be repeated.
    """
    with db.write() as session:
        job = jobs.lock_job(session, job_id)
        if job is None or job.archive_key is None or State(job.state) not in TERMINAL:
            return
        store.delete(job.archive_key)
        job.archive_key = None


def forget_old(db: Database, store: Store) -> None:
    """Delete the uploads of finished jobs that were not deleted when these ended."""
    over = sorted(str(state) for state in TERMINAL)
    with db.read() as session:
        job_ids = list(
            session.scalars(select(Job.id).where(Job.archive_key.is_not(None), Job.state.in_(over)))
        )
    for job_id in job_ids:
        forget(db, store, job_id)
