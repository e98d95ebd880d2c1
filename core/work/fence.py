"""Who may write: a worker's claim on a job, checked against the fence inside every transaction.

A claim bumps the model's fence counter and stamps it on the job. A worker that outlived its lease holds
an old number: each of its writes finds another one and ends in `LeaseLost`, without an effect.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from core.db import jobs
from core.db.states import LEASED, State
from core.db.tables import Job
from core.errors import LeaseLost


@dataclass(frozen=True)
class Claim:
    """What a worker got: one job, for as long as its lease is renewed.

    `state` is validating (the archive is to be decoded first) or running; `attempt` counts starts;
    `waited_s`: how many seconds a job waited for its first start, None at later ones.
    """

    job_id: str
    model_id: str
    task_id: str
    task_number: int
    fence: int
    worker: str
    attempt: int
    state: State
    parent_version: int
    snapshot: dict[str, Any] | None
    waited_s: float | None = None


def hold(session: Session, claim: Claim) -> Job:
    """Lock the claimed job's row and return it.

    Raises:
        LeaseLost: the claim is not the job's current one.
    """
    job = jobs.locked(session, claim.job_id)
    if job is None or job.fence != claim.fence or State(job.state) not in LEASED:
        raise LeaseLost(f"The lease on {claim.job_id} (fence {claim.fence}) is lost.")
    return job
