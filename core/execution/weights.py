"""Places of pretrained weights, and turns in fetching: the same weights only once at a time."""

from sqlalchemy import func, select, update

from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import LEASED
from core.database.tables import FetchedPretrainedWeights, Job
from core.jobs.fence import JobClaim, lock_claimed_job
from core.jobs.postponement import JobPutOffSignal, make_put_off_jobs_claimable
from core.retention import references
from core.storage import Blobs

WAIT_S = 10.0
"""Seconds after which a job that has to wait looks again, unless another fetch ends first."""
_LEASED = sorted(str(state) for state in LEASED)


def find_weights_or_claim_fetching(
    db: Database, blobs: Blobs, claim: JobClaim, repository: str, limit: int
) -> FetchedPretrainedWeights | None:
    """Return pretrained weights if they are stored; None if this job must download them, and no
    other will.

    Args:
        limit: maximum number of jobs that fetch weights at once.

    Raises:
        JobPutOffSignal: another job fetches these weights, or enough jobs are fetching.
        LeaseLost: the job belongs to another worker by now.
    """
    with db.write() as session:
        # A worker without the lease must not keep others from fetching.
        lock_claimed_job(session, claim)
        # also one at a time, so that jobs of the same moment see each other
        references.lock_blob_references_exclusively(session)
        row = session.get(FetchedPretrainedWeights, repository)
        if row is not None and row.sha256 is not None and blobs.has(row.sha256):
            return row
        under_way = select(Job.id).where(Job.state.in_(_LEASED), Job.id != claim.job_id)
        theirs = None if row is None else session.scalar(under_way.where(Job.id == row.job_id))
        if theirs is not None:
            raise JobPutOffSignal("another job brings the same weights", WAIT_S)
        fetching = select(func.count()).where(FetchedPretrainedWeights.job_id.in_(under_way))
        if (session.scalar(fetching) or 0) >= limit:
            raise JobPutOffSignal(
                f"{limit} jobs bring weights, the most at once: PERENNIAL_MAX_FETCHES", WAIT_S
            )
        if row is None:
            row = FetchedPretrainedWeights(repository=repository)
            session.add(row)
        # If this worker dies, its lease ends and the job is leased no more, which frees the place.
        row.job_id = claim.job_id
        return None


def finish_weights_fetch_and_wake_waiting_jobs(db: Database, claim: JobClaim) -> None:
    """Record that a job has stopped downloading weights, and let waiting jobs look again."""
    with db.write() as session:
        session.execute(
            update(FetchedPretrainedWeights)
            .where(FetchedPretrainedWeights.job_id == claim.job_id)
            .values(job_id=None)
        )
        # They would otherwise wait out their pause, though the weights are there now.
        make_put_off_jobs_claimable(session, JobKind.FETCH, claim)
