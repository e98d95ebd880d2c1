"""Retry a job outside of a model's lineage, such as an export, after it failed or was cancelled."""

from sqlalchemy.orm import Session

from core.contract.responses.audit import AuditData
from core.database.jobs import change_job_state
from core.database.states import JobAction, JobState, find_next_job_state
from core.database.tables import Job, Model
from core.requests.actor import Actor
from core.requests.audit import AuditedChange, record_audit_entry
from core.usage import quota


def requeue_ended_job(
    session: Session, actor: Actor, model: Model, job: Job, max_open_jobs: int, now: float
) -> bool:
    """Queue a job that has ended again; return True if there is new work to do.

    Args:
        now: seconds since 1970.

    Raises:
        WrongState: the job has succeeded, or is paused.
        TooManyRequests: the owner has no room for another open job.
    """
    former_state = JobState(job.state)
    if find_next_job_state(former_state, JobAction.RETRY) is former_state:
        return False
    # A person has asked, so that former failures and a pause after an outage do not count.
    job.strikes, job.error, job.progress, job.not_before = 0, None, {}, None
    job.out_of_memory = 0
    change_job_state(session, job, JobAction.RETRY, now)
    data: AuditData = {"from": str(former_state), "to": job.state}
    record_audit_entry(
        session, actor, AuditedChange("job.retry", job.id, data, model=model.id), now
    )
    # The count of open jobs below must include this one.
    session.flush()
    quota.require_added_job_within_limit(session, model.owner_id, max_open_jobs)
    return True
