"""The trials of a job as responses show them."""

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from core.contract.jobs.trial import TrialScore
from core.contract.responses.job import TrialOut, TrialScoreOut, TrialsOut
from core.database.session import Database
from core.database.tables import Job, Model, Trial
from core.errors import NotFound
from core.ids import is_id
from core.jobs.jobs import make_missing_job_error
from core.requests.actor import Actor
from core.requests.timestamps import format_rfc3339
from core.trials.rows import TrialState, find_best_trial_number, list_measured_trials, read_trials
from core.trials.trial_comparison import MeasuredTrial, explain_why_trial_lost


def read_job_trials(db: Database, actor: Actor, job_id: str) -> TrialsOut:
    """Read the trials of a job, as a response.

    Raises:
        NotFound: the caller sees no such job, or it has one recipe.
    """
    with db.read() as session:
        job = session.get(Job, job_id) if is_id(job_id, "job") else None
        if job is None or not actor.can_see(job.owner_id):
            raise make_missing_job_error(job_id)
        return build_trials_response(session, job)


def find_job_trials(db: Database, actor: Actor, job_id: str) -> TrialsOut | None:
    """Find the trials of a job; None if it has a single recipe, or the caller sees no such job."""
    with db.read() as session:
        job = session.get(Job, job_id) if is_id(job_id, "job") else None
        if job is None or job.choose is None or not actor.can_see(job.owner_id):
            return None
        return build_trials_response(session, job)


def build_trials_response(session: Session, job: Job) -> TrialsOut:
    """Build the response that lists the trials of a job.

    Raises:
        NotFound: the job has one recipe.
    """
    require_job_has_trials(job)
    assert job.choose is not None, "required above"
    # Sessions do not flush before a query, and the caller may have just changed a trial.
    session.flush()
    trials = read_trials(session, job.id)
    best = find_best_trial_number(trials)
    candidates = {each.number: each for each in list_measured_trials(trials)}
    model = session.get_one(Model, job.model_id)
    winner = candidates.get(job.chosen_trial or 0)
    return {
        "job": job.id,
        "choose": job.choose,
        "state": job.state,
        "source": "selection" if model.selection else "left-out",
        "chosen": job.chosen_trial,
        "best": best,
        "until": format_rfc3339(job.choose_until),
        "max_seconds": job.trial_budget_s,
        "items": [
            _trial_to_json(trial, candidates, winner, job.trial_budget_s) for trial in trials
        ],
    }


def require_job_has_trials(job: Job) -> None:
    """Raise NotFound unless a job has trials."""
    if job.choose is None:
        raise NotFound(
            f"Job {job.id} learns one recipe and has no trials. Send a batch with trials=auto to "
            f"compare several."
        )


def _trial_to_json(
    trial: Trial,
    candidates: Mapping[int, MeasuredTrial],
    winner: MeasuredTrial | None,
    budget_s: float | None,
) -> TrialOut:
    figures, measured_trial = trial.figures, candidates.get(trial.number)
    is_loser = (
        measured_trial is not None and winner is not None and measured_trial.number != winner.number
    )
    lost = (
        explain_why_trial_lost(measured_trial, winner)
        if is_loser and measured_trial is not None and winner
        else None
    )
    if trial.state == TrialState.SKIPPED:
        lost = _explain_skipped_trial(budget_s)
    return {
        "trial": trial.number,
        "recipe": trial.recipe_override,
        "reason": trial.reason,
        "state": trial.state,
        "score": None if figures is None else _score_to_json(figures.score),
        "passes_gate": None if figures is None else figures.passed,
        "accuracy": {} if figures is None else _compute_accuracy_by_task(figures.accuracy),
        "acc": None if figures is None else figures.acc,
        "held_out": None if figures is None else _count_held_out_images(figures.accuracy),
        "forgetting": None if figures is None else figures.forgetting,
        "forecast": None if figures is None else figures.forecast,
        "seconds": trial.seconds,
        "bytes": None if figures is None else figures.bytes,
        "images": None if figures is None else figures.images,
        "error": trial.error,
        "why_lost": trial.error["detail"] if trial.error is not None else lost,
    }


def _explain_skipped_trial(budget_s: float | None) -> str:
    """Explain why a trial was not run, in a sentence."""
    return f"It was not run: the budget of {budget_s or 0:g} s was used up before it."


def _score_to_json(score: TrialScore | None) -> TrialScoreOut | None:
    if score is None:
        return None
    return {
        "source": score.source,
        "value": score.value,
        "standard_error": score.error,
        "images": score.images,
    }


def _count_held_out_images(counts: Mapping[str, Sequence[int]]) -> int:
    return sum(total for _, total in counts.values())


def _compute_accuracy_by_task(counts: Mapping[str, Sequence[int]]) -> dict[str, float | None]:
    return {task: right / total if total else None for task, (right, total) in counts.items()}
