"""Uploads that are a job's own: kept while it is not over."""

from sqlalchemy import select

from core.db import jobs
from core.db.session import Database
from core.db.states import TERMINAL, State
from core.db.tables import Job
from core.store import Store


def forget(db: Database, store: Store, job_id: str) -> None:
    """Delete the upload of a job that is over, then its name; a crash between the two repeats the first."""
    with db.write() as session:
        job = jobs.locked(session, job_id)
        if job is None or job.archive_key is None or State(job.state) not in TERMINAL:
            return
        store.delete(job.archive_key)
        job.archive_key = None


def forget_old(db: Database, store: Store) -> None:
    """Delete those that nobody deleted when their job ended."""
    over = sorted(str(state) for state in TERMINAL)
    with db.read() as session:
        left = list(session.scalars(select(Job.id).where(Job.archive_key.is_not(None), Job.state.in_(over))))
    for job_id in left:
        forget(db, store, job_id)
