"""A job beside a model's line, such as an export, is run again after it failed or was cancelled."""

from sqlalchemy.orm import Session

from core.db.jobs import move
from core.db.states import Action, State, after
from core.db.tables import Job, Model
from core.protocol.answers.audit import AuditData
from core.requests import quota
from core.requests.actor import Actor
from core.requests.audit import record


def run_again(session: Session, actor: Actor, model: Model, job: Job, max_open_jobs: int, now: float) -> bool:
    """Queue the job anew; whether there is something new to do.

    Args:
        now: seconds since the epoch.

    Raises:
        WrongState: the job has succeeded, or is paused.
        TooManyRequests: the owner has no room for one more open job.
    """
    before = State(job.state)
    if after(before, Action.RETRY) is before:
        return False
    job.strikes, job.error, job.progress, job.not_before = 0, None, {}, None
    job.out_of_memory = 0
    move(session, job, Action.RETRY, now)
    data: AuditData = {"from": str(before), "to": job.state}
    record(session, actor, "job.retry", job.id, data, now=now, model=model.id)
    session.flush()
    quota.take_turn(session, model.owner_id, max_open_jobs)
    return True
