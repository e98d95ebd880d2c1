"""Jobs whose trials are measured and that wait until a person chooses one, as items of a model."""

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.responses.attention import ActionOut, AttentionOut
from core.database.states import JobState
from core.database.tables import Job, Task, Trial
from core.lineage import wording
from core.models.held_actions import build_suggested_request
from core.trials.rows import TrialState, find_best_trial_number


def list_trial_choice_attention_items(
    session: Session, models: Collection[str]
) -> dict[str, list[AttentionOut]]:
    """Return by model id the items of jobs that wait for a person to choose a trial, in two
    queries.
    """
    query = (
        select(Job, Task)
        .join(Task, Task.id == Job.task_id)
        .where(Job.model_id.in_(models), Job.state == str(JobState.CHOOSING))
        .order_by(Job.place)
    )
    waiting = session.execute(query).all()
    if not waiting:  # as for most models
        return {}
    trials: dict[str, list[Trial]] = {job.id: [] for job, _ in waiting}
    of_jobs = select(Trial).where(Trial.job_id.in_(trials)).order_by(Trial.number)
    for trial in session.scalars(of_jobs):
        trials[trial.job_id].append(trial)
    items: dict[str, list[AttentionOut]] = {}
    for job, task in waiting:
        items.setdefault(task.model_id, []).append(
            _build_trial_choice_item(job, task, trials[job.id])
        )
    return items


def _build_trial_choice_item(job: Job, task: Task, trials: Sequence[Trial]) -> AttentionOut:
    best = find_best_trial_number(trials)
    measured = [trial.number for trial in trials if trial.state == TrialState.MEASURED]
    # The first action is the usual choice.
    in_order = sorted(measured, key=lambda number: number != best)
    until = (
        ""
        if job.choose_until is None
        else f", and it is chosen on {wording.format_date(job.choose_until)} if nobody does"
    )
    return {
        "kind": str(JobState.CHOOSING),
        "version": None,
        "task": task.number,
        "since": None,
        "training_data_until": None,
        "detail": f"All trials of {wording.describe_task_in_words(task)} are measured, and its job waits "
        f"until a person chooses one. Trial {best} is suggested{until}. Later "
        "batches wait for it.",
        "actions": [
            _build_choose_trial_request(job, number, number == best) for number in in_order
        ],
        "reasons": [],
        "pictures": [],
    }


def _build_choose_trial_request(job: Job, number: int, is_best: bool) -> ActionOut:
    title = f"Choose trial {number}{', which is suggested' if is_best else ''}"
    return build_suggested_request(title, f"/v1/jobs/{job.id}/choose", {"trial": number})
