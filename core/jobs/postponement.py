"""Jobs that must wait although a worker has claimed them."""

from sqlalchemy import update
from sqlalchemy.orm import Session

from core.database.kinds import JobKind
from core.database.states import JobState
from core.database.tables import Job
from core.jobs.fence import JobClaim


class JobPutOffSignal(Exception):
    """Signal from a worker's code that it is not this job's turn: the job is released for at least
    `seconds`.
    """

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds


def make_put_off_jobs_claimable(session: Session, kind: JobKind, claim: JobClaim) -> None:
    """Let workers claim all other put-off jobs of a kind at once."""
    waiting = (Job.kind == str(kind), Job.state == str(JobState.QUEUED), Job.id != claim.job_id)
    session.execute(
        update(Job).where(*waiting, Job.not_before.is_not(None)).values(not_before=None)
    )
