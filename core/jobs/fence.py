"""Write protection by fences: a worker's claim on a job is checked inside every transaction.

A claim increments the model's fence counter and stamps it on the job. A worker that outlived its
lease has an old number: each of its writes finds another one and ends in `LeaseLost` without an
effect.
"""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.contract.jobs.snapshot import StoredSnapshot
from core.database import jobs
from core.database.states import LEASED, JobState
from core.database.tables import Job
from core.errors import LeaseLost


@dataclass(frozen=True)
class JobClaim:
    """A worker's claim (lease) on one job, valid while it is renewed.

    Attributes:
        task_id, task_number, parent_version: None if the job learns no task.
        attempt: number of starts, from 1.
        state: validating (an archive must be decoded first) or running.
        waited_s: seconds that the job waited for its first start; None at later starts.
        device: device to run on: cpu, cuda, or auto if the worker has not said what it has.
    """

    job_id: str
    kind: str
    model_id: str
    task_id: str | None
    task_number: int | None
    fence: int
    worker: str
    attempt: int
    state: JobState
    parent_version: int | None
    snapshot: StoredSnapshot | None
    waited_s: float | None = None
    device: str = "auto"

    @property
    def parent(self) -> int:
        """Number of the version that a claimed learning job starts from."""
        assert self.parent_version is not None, "the job learns a task"
        return self.parent_version


def lock_claimed_job(session: Session, claim: JobClaim) -> Job:
    """Lock the database row of the job that a worker has claimed, and return it.

    Raises:
        LeaseLost: the claim is not the job's current one.
    """
    # Locked first, so that no other worker can claim the job before this transaction ends.
    job = jobs.lock_job(session, claim.job_id)
    if job is None or job.fence != claim.fence or JobState(job.state) not in LEASED:
        raise LeaseLost(f"The lease on {claim.job_id} (fence {claim.fence}) is lost.")
    return job
