"""Export of ONNX graphs in this worker: available packages, reports to the API, and a limit on
concurrent exports.
"""

import functools
import importlib.util

from sqlalchemy import func, select, update

from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import LEASED
from core.database.tables import ExportJob, Job
from core.jobs.fence import JobClaim, lock_claimed_job
from core.jobs.postponement import JobPutOffSignal, make_put_off_jobs_claimable
from core.retention import references
from core.versions import exporters

WAIT_S = 10.0
"""Seconds after which a job that has to wait looks again, unless another export ends first."""
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@functools.cache
def has_onnx_export_packages() -> bool:
    """Return True if all Python packages for an ONNX export are installed, without importing
    them.
    """
    return all(importlib.util.find_spec(name) is not None for name in PACKAGES)


def record_worker_if_able_to_export(db: Database, worker: str) -> None:
    """Record in the database that this worker can run exports, if it has the packages."""
    if has_onnx_export_packages():
        with db.write() as session:
            exporters.record_exporting_worker(session, worker, db.now(session))


def begin_export_or_raise_put_off(db: Database, claim: JobClaim, limit: int) -> None:
    """Begin a claimed export, or put it off if too many exports are running.

    Raises:
        JobPutOffSignal: `limit` jobs are exporting now.
        LeaseLost: the job belongs to another worker by now.
    """
    with db.write() as session:
        lock_claimed_job(session, claim)
        references.lock_blob_references_exclusively(
            session
        )  # one at a time, so that jobs of the same moment see each other
        # The fence excludes an earlier attempt that died while it was exporting.
        leased = Job.state.in_(sorted(str(state) for state in LEASED))
        exporting_jobs = (
            select(func.count())
            .select_from(ExportJob)
            .join(Job, Job.id == ExportJob.job_id)
            .where(leased, Job.fence == ExportJob.fence, Job.id != claim.job_id)
        )
        if (session.scalar(exporting_jobs) or 0) >= limit:
            raise JobPutOffSignal(
                f"{limit} jobs export, the most at once: PERENNIAL_MAX_EXPORTS", WAIT_S
            )
        mine = ExportJob.job_id == claim.job_id
        session.execute(update(ExportJob).where(mine).values(fence=claim.fence))


def end_export_and_release_waiting(db: Database, claim: JobClaim) -> None:
    """Mark an export job as ended, and let waiting exports be claimed at once."""
    with db.write() as session:
        session.execute(
            update(ExportJob).where(ExportJob.job_id == claim.job_id).values(fence=None)
        )
        # They would otherwise wait out their pause beside a free place.
        make_put_off_jobs_claimable(session, JobKind.EXPORT, claim)
