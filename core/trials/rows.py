"""The rows of a job's trials: read, ranked, failed, started again and forgotten."""

from collections.abc import Callable, Sequence
from enum import StrEnum

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session

from core.contract.error import JobError
from core.contract.patch import RecipePatch
from core.contract.responses.recipe import RecipeOut
from core.database.jobs import build_unfinished_job_condition, change_job_state
from core.database.states import JobAction, JobState
from core.database.tables import Job, Task, Trial, TrialFile
from core.trials.plan import PlannedTrial, TrialsRequest
from core.trials.trial_comparison import MeasuredTrial, choose_best_measured_trial

_OF_ALL = frozenset({"data", "time"})
"""Kinds of errors that all candidates would meet."""


class TrialState(StrEnum):
    """State of a trial."""

    WAITING = "waiting"
    RUNNING = "running"
    MEASURED = "measured"
    FAILED = "failed"
    SKIPPED = "skipped"


_ENDED = frozenset({TrialState.FAILED, TrialState.SKIPPED})
"""States of candidates that no version can be made of."""


def read_trials(session: Session, job_id: str) -> list[Trial]:
    """Read the trials of a job, in order."""
    query = select(Trial).where(Trial.job_id == job_id).order_by(Trial.number)
    return list(session.scalars(query))


def add_planned_trials(
    session: Session, job: Job, planned: Sequence[PlannedTrial], request: TrialsRequest | None
) -> None:
    """Add the planned trials of a new job to the database, if it has any."""
    job.choose = None if request is None else request.choose
    job.trial_budget_s = None if request is None else request.max_seconds
    session.add_all(
        Trial(
            job_id=job.id,
            number=number,
            recipe_override=trial.override,
            recipe=trial.resolved_recipe.recipe,
            reason=trial.reason,
            state=str(TrialState.WAITING),
            parent=None,
            began_s=None,
            seconds=None,
            figures=None,
            error=None,
        )
        for number, trial in enumerate(planned, start=1)
    )


def has_model_selection_images(session: Session, model_id: str) -> bool:
    """Return True if a model has images set aside for comparing trials."""
    query = select(Task.id).where(
        Task.model_id == model_id,
        Task.selection_sha256.is_not(None),
        Task.held_out_deleted_at.is_(None),
    )
    return session.scalar(query.limit(1)) is not None


def list_measured_trials(trials: Sequence[Trial]) -> list[MeasuredTrial]:
    """List the measured trials of a job."""
    return [
        MeasuredTrial(trial.number, trial.figures, trial.seconds or 0.0)
        for trial in trials
        if trial.state == TrialState.MEASURED and trial.figures is not None
    ]


def find_best_trial_number(trials: Sequence[Trial]) -> int | None:
    """Find the number of the best measured trial; None without one."""
    candidates = list_measured_trials(trials)
    return choose_best_measured_trial(candidates).number if candidates else None


def fail_running_trial(session: Session, job: Job, problem: JobError) -> bool:
    """Record that a job's running trial failed; return True if the job goes on with another.

    Errors of the batch concern all trials, and so does the time that the job may take.
    """
    if job.choose is None or problem["kind"] in _OF_ALL:
        return False
    trials = read_trials(session, job.id)
    running = next((trial for trial in trials if trial.state == TrialState.RUNNING), None)
    # A job whose trials are all measured fails when the chosen one cannot be published.
    if running is None:
        return False
    running.state, running.error = str(TrialState.FAILED), problem
    return any(trial.state not in _ENDED for trial in trials)


def reset_all_trials(
    session: Session, job: Job, change: Callable[[RecipePatch], tuple[RecipePatch, RecipeOut]]
) -> None:
    """Reset all trials of a job, so that they are learned again.

    Args:
        change: returns the override and the resolved recipe in place of an override.
    """
    job.chosen_trial = job.choose_until = None
    for trial in read_trials(session, job.id):
        trial.recipe_override, trial.recipe = change(trial.recipe_override)
        reset_trial_to_waiting(trial)
    delete_trial_file_rows(session, job.id)


def reset_trial_to_waiting(trial: Trial) -> None:
    """Delete a trial's measurements, and set it back to waiting."""
    trial.state = str(TrialState.WAITING)
    trial.parent = trial.began_s = trial.seconds = trial.figures = trial.error = None


def remove_trials_from_job(session: Session, job: Job) -> None:
    """Convert a job with trials into one with a single recipe."""
    if job.choose is None:
        return
    job.choose = job.chosen_trial = job.choose_until = job.trial_budget_s = None
    delete_trial_file_rows(session, job.id)
    session.execute(delete(Trial).where(Trial.job_id == job.id))


def delete_trial_file_rows(session: Session, job_id: str) -> set[str]:
    """Delete the database rows of trial files of a job, and return the files' digests."""
    rows = list(session.scalars(select(TrialFile).where(TrialFile.job_id == job_id)))
    for row in rows:
        session.delete(row)
    return {row.sha256 for row in rows}


def lock_unfinished_trial_jobs(session: Session, model_id: str) -> None:
    """Lock a model's unfinished jobs with trials.

    Before `reset_trials_of_unfinished_jobs` and before the model's row: another order could deadlock.
    """
    query = _build_unfinished_trial_jobs_query(model_id).with_for_update(key_share=True)
    session.scalars(query.execution_options(populate_existing=True)).all()


def _build_unfinished_trial_jobs_query(model_id: str) -> Select[Job]:
    with_trials = (Job.model_id == model_id, Job.choose.is_not(None))
    return (
        select(Job).where(*with_trials, build_unfinished_job_condition(Job.state)).order_by(Job.id)
    )


def reset_trials_of_unfinished_jobs(session: Session, model_id: str, now: float) -> set[str]:
    """Delete results of trials of a model's unfinished jobs, since its data is deleted.

    They are learned again without that data. The caller holds the lock on the model's row.

    Returns:
        The digests of their files.
    """
    digests: set[str] = set()
    for job in session.scalars(_build_unfinished_trial_jobs_query(model_id)):
        digests |= delete_trial_file_rows(session, job.id)
        for trial in read_trials(session, job.id):
            if trial.state in (TrialState.MEASURED, TrialState.SKIPPED):
                reset_trial_to_waiting(trial)
        job.chosen_trial = job.choose_until = None
        if job.state == JobState.CHOOSING:
            reason = "Data of the model was deleted, and its trials are learned again"
            change_job_state(session, job, JobAction.CHOOSE, now, {"reason": reason})
    return digests
