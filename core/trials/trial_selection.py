"""Choice of a trial by a person, and of the best one where nobody chose in time."""

from sqlalchemy import select

from core.contract.responses.audit import AuditData
from core.contract.responses.job import TrialsOut
from core.database.jobs import change_job_state
from core.database.session import Database
from core.database.states import JobAction, JobState
from core.database.tables import Job, Trial
from core.errors import NotFound, WrongState
from core.jobs.jobs import lock_visible_job
from core.requests.actor import Actor
from core.requests.audit import AuditedChange, record_audit_entry
from core.trials.listing import build_trials_response, require_job_has_trials
from core.trials.rows import TrialState, find_best_trial_number, read_trials


def choose_trial(db: Database, actor: Actor, job_id: str, number: int) -> tuple[TrialsOut, bool]:
    """Choose the trial that a waiting job publishes; repeating the choice changes nothing.

    Returns:
        The trials, and True if the job has something new to do.

    Raises:
        NotFound: the caller sees no such job, or it has no such trial.
        WrongState: the job does not wait for a choice, or the trial was not measured.
    """
    with db.write() as session:
        job = lock_visible_job(session, actor, job_id)
        require_job_has_trials(job)
        # Before the check of the state: a repeated request succeeds even if the job went on.
        if job.chosen_trial == number:
            return build_trials_response(session, job), False
        if job.state != JobState.CHOOSING:
            is_over = job.chosen_trial is not None
            detail = (
                f"Trial {job.chosen_trial} is chosen already."
                if is_over
                else f"The job is {job.state}, and waits for no choice."
            )
            raise WrongState(detail, extra={"state": str(job.state)})
        trial = session.get(Trial, (job.id, number))
        if trial is None:
            raise NotFound(f"Job {job.id} has no trial {number}.")
        if trial.state != TrialState.MEASURED:
            raise WrongState(
                f"Trial {number} is {trial.state} and cannot be chosen.",
                extra={"state": trial.state},
            )
        now = db.now(session)
        job.chosen_trial, job.choose_until = number, None
        reason = f"Trial {number} was chosen"
        change_job_state(session, job, JobAction.CHOOSE, now, {"reason": reason})
        data: AuditData = {"trial": number}
        record_audit_entry(
            session, actor, AuditedChange("job.choose", job.id, data, model=job.model_id), now
        )
        return build_trials_response(session, job), True


def choose_best_of_overdue_trials(db: Database) -> list[str]:
    """Choose the best trial for jobs whose user did not choose in time; return the jobs' ids."""
    chosen: list[str] = []
    with db.read() as session:
        waits = select(Job.id).where(Job.choose_until < db.now(session)).limit(1)
        # Most often none waits, and nothing needs to be locked.
        if session.scalar(waits) is None:
            return chosen
    with db.write() as session:
        now = db.now(session)
        query = select(Job).where(Job.choose_until < now, Job.state == str(JobState.CHOOSING))
        # Whoever has a lock on a job is just changing it, perhaps by choosing a trial.
        for job in session.scalars(query.with_for_update(skip_locked=True, key_share=True)):
            job.chosen_trial, job.choose_until = (
                find_best_trial_number(read_trials(session, job.id)),
                None,
            )
            reason = f"Nobody chose in time, and trial {job.chosen_trial} is the best"
            change_job_state(session, job, JobAction.CHOOSE, now, {"reason": reason})
            chosen.append(job.id)
    return chosen
