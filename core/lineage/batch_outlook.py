"""Outlook of a batch that is submitted now: tasks its version will lack, and reasons to wait."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from core.database.states import TERMINAL, JobState
from core.database.tables import Alias, Job, Model, Task, Version
from core.lineage import lineage, wording
from core.lineage.coverage import (
    PASSED_OVER,
    list_taught_tasks,
    select_missing_rolled_back_or_skipped_tasks,
)
from core.lineage.standing import read_unfinished_job_states_by_task


@dataclass(frozen=True)
class BatchSubmissionWarnings:
    """Warnings about a batch at its submission: tasks its version will lack, and reasons to wait.

    Attributes:
        missing: a sentence for each task that its version will lack.
        notes: reasons why the batch waits, and a note on a pinned production.
    """

    missing: list[str]
    notes: list[str]


def describe_next_task_outlook(
    session: Session, model: Model, head: Version | None
) -> BatchSubmissionWarnings:
    """Describe the outlook of a model's next task: whether it waits, and tasks its version will
    lack.

    Args:
        head: version that the task starts from; None while the model waits for its base.
    """
    query = select(Task).where(
        Task.model_id == model.id, build_passed_over_or_blocking_task_condition()
    )
    return describe_next_task_outlook_from_tasks(session, model, head, session.scalars(query).all())


def build_passed_over_or_blocking_task_condition() -> ColumnElement[bool]:
    """Build the SQL condition for tasks that the next version may lack or that stop the lineage."""
    return or_(Task.standing.in_(PASSED_OVER), Task.stops)


def describe_next_task_outlook_from_tasks(
    session: Session, model: Model, head: Version | None, tasks: Sequence[Task]
) -> BatchSubmissionWarnings:
    """Describe the outlook of a task from its model's state, as `describe_next_task_outlook` does.

    Args:
        tasks: those of the model that `build_passed_over_or_blocking_task_condition` selects, and maybe others.
    """
    taught = [] if head is None else list_taught_tasks(head.manifest)
    in_order = sorted(tasks, key=lambda task: task.number)
    passed_over = [task for task in in_order if task.standing in PASSED_OVER]
    lacked = select_missing_rolled_back_or_skipped_tasks(session, model, passed_over, taught)
    missing = [wording.describe_missing_task(model, task, standing) for task, standing in lacked]
    notes = _describe_wait_for_base_weights(session, model) if head is None else []
    stop = next((task for task in in_order if task.stops), None)
    if stop is not None:
        is_retrying = stop.number in read_unfinished_job_states_by_task(session, model.id)
        notes.append(
            wording.explain_waiting_batch(
                stop, lineage.find_held_version_of_task(session, stop), is_retrying
            )
        )
    if not model.production_follows:
        production = session.get_one(Alias, (model.id, lineage.PRODUCTION)).version
        notes.append(wording.explain_pinned_production(model, production))
    return BatchSubmissionWarnings(missing, notes)


def _describe_wait_for_base_weights(session: Session, model: Model) -> list[str]:
    """Describe in a sentence that a task waits for base weights to be downloaded; empty if the job
    ended.

    A job that waits for a base that cannot be fetched says so in its own response.
    """
    job = None if model.base_job is None else session.get(Job, model.base_job)
    return (
        []
        if job is None or JobState(job.state) in TERMINAL
        else [wording.explain_batch_waiting_for_base(job.id)]
    )
