"""Decisions of people about single tasks: continue without one, discard it, or learn it again.

Each is one transaction under the lock of the model's row. Held versions are judged again
afterwards, since the tasks that they must cover may have changed.
"""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.admission.admission import NO_LIMITS, NewJobLimits
from core.contract.patch import RecipePatch
from core.contract.responses.audit import AuditData
from core.contract.responses.job import JobOut
from core.contract.responses.task import TaskOut
from core.database.jobs import is_job_rejected_for_findings
from core.database.session import Database
from core.database.tables import Model, Task
from core.errors import NotFound, WrongState
from core.jobs.job_response import build_job_response
from core.lineage import lineage, wording
from core.lineage.coverage import list_taught_tasks
from core.lineage.standing import (
    DISCARDABLE,
    LACKED,
    TaskStanding,
    derive_task_standing,
    read_unfinished_job_states_by_task,
)
from core.recipe.stored_patch import build_stored_recipe_override
from core.requests.actor import Actor, UseCaseTransaction, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.resources import UseCaseResources
from core.tasks import retries, task_response
from core.usage import quota


@dataclass(frozen=True)
class _TaskSettlingDecision:
    """A person's decision about a task: action in the audit trail, standing before it, and reason."""

    action: str
    before: TaskStanding
    reason: str | None


def skip_held_task_and_continue_lineage(
    db: Database, actor: Actor, model: str, number: int, reason: str | None
) -> tuple[TaskOut, str | None]:
    """Let a model's lineage continue without a task whose version is held: the task is skipped.

    Returns:
        The task, and the id of a job of the model that may run next.

    Raises:
        NotFound: there is no such model or task.
        WrongState: the task is not held; `extra["standing"]` is its standing.
    """
    with db.write() as session:
        row, task, where = _lock_model_and_task(session, actor, model, number)
        if where is not TaskStanding.HELD:
            raise _make_wrong_task_standing_error(
                row, task, where, "Only a task whose version is held can be passed over"
            )
        now = db.now(session)
        lineage.skip_held_task(row, task, now)
        decision = _TaskSettlingDecision("task.continue", where, reason)
        return _record_decision_and_publish_passing_versions(
            UseCaseTransaction(session, actor, now), row, task, decision
        )


def discard_task(
    db: Database, actor: Actor, model: str, number: int, reason: str | None
) -> tuple[TaskOut, str | None]:
    """Discard a task: no version has to know it, and nothing waits for it.

    Returns:
        The task, and the id of a job of the model that may run next.

    Raises:
        NotFound: there is no such model or task.
        WrongState: the task is open, or needs no decision.
    """
    with db.write() as session:
        row, task, where = _lock_model_and_task(session, actor, model, number)
        if where not in DISCARDABLE:
            can = wording.join_words_with_conjunction(
                [_format_task_standing(one) for one in DISCARDABLE], 10
            )
            raise _make_wrong_task_standing_error(
                row, task, where, f"A task can be discarded that is {can}"
            )
        now = db.now(session)
        lineage.mark_task_discarded(row, task, now)
        decision = _TaskSettlingDecision("task.discard", where, reason)
        return _record_decision_and_publish_passing_versions(
            UseCaseTransaction(session, actor, now), row, task, decision
        )


def relearn_task(
    resources: UseCaseResources,
    actor: Actor,
    model: str,
    number: int,
    override: RecipePatch | None,
    limits: NewJobLimits = NO_LIMITS,
) -> tuple[JobOut, bool]:
    """Learn a task again that the lineage lacks, from its newest version and before all waiting
    tasks.

    Args:
        override: recipe override that replaces that of its last job; None keeps it.

    Returns:
        The job, and True if it is new; an unfinished job of the task is returned instead of a new
        one.

    Raises:
        NotFound: there is no such model or task.
        WrongState: the lineage head was taught it, no version was made of it yet, or its training
            images are gone (`extra["training_data_deleted_at"]`).
        InvalidRecipe: the recipe cannot be used.
        JobTooLarge: the job exceeds the limits.
        TooManyRequests: the owner has no room for another open job.
    """
    db, catalogue = resources.db, resources.catalogue
    override = None if override is None else build_stored_recipe_override(catalogue, override)
    with db.write() as session:
        row, task, task_standing = _lock_model_and_task(session, actor, model, number)
        if task.belongs_to_adopted_classifier:
            text = "No training image of it was ever here: promote a version that has it"
            raise _make_wrong_task_standing_error(row, task, task_standing, text)
        last = retries.find_newest_job_of_task(session, task)
        is_lacked = task.standing in LACKED
        if (
            task_standing in (TaskStanding.QUEUED, TaskStanding.RUNNING)
            and is_lacked
            # A request with another recipe must not seem accepted while the old one is learned.
            and override in (None, last.recipe_override)
        ):
            return build_job_response(session, last), False
        if task_standing not in LACKED:
            raise _make_wrong_task_standing_error(
                row,
                task,
                task_standing,
                _explain_why_task_not_relearnable(session, row, task, task_standing),
            )
        now = db.now(session)
        request = retries.TaskRelearnContext(
            session, actor, catalogue, row, task, last, override, now, limits.admission
        )
        new = retries.create_relearning_job(request, "task.relearn")
        quota.require_added_job_within_limit(session, row.owner_id, limits.max_open_jobs)
        return build_job_response(session, new), True


def _explain_why_task_not_relearnable(
    session: Session, model: Model, task: Task, where: TaskStanding
) -> str:
    """Explain why a task cannot be learned again."""
    if where is TaskStanding.LEARNED and task.number in list_taught_tasks(
        lineage.get_lineage_head(session, model).manifest
    ):
        return f"Version {model.head}, from which the lineage continues, was taught it"
    if where in (TaskStanding.QUEUED, TaskStanding.RUNNING):
        return "Its job is under way"
    if where is TaskStanding.REJECTED and not is_job_rejected_for_findings(
        retries.find_newest_job_of_task(session, task)
    ):
        return "Its archive cannot be used: send the batch again"
    return f"Retry its job: POST /v1/jobs/{retries.find_newest_job_of_task(session, task).id}/retry"


def _lock_model_and_task(
    session: Session, actor: Actor, model: str, number: int
) -> tuple[Model, Task, TaskStanding]:
    """Lock a model's row, and return it with a task and the task's standing."""
    row = find_model(session, actor, model, lock=True)
    # After the model's row, as in a publish; another order could deadlock.
    query = select(Task).where(Task.model_id == row.id, Task.number == number)
    task = session.scalar(query.with_for_update().execution_options(populate_existing=True))
    if task is None:
        raise NotFound(f"The model has no task {number}.")
    return (
        row,
        task,
        derive_task_standing(task, read_unfinished_job_states_by_task(session, row.id).get(number)),
    )


def _record_decision_and_publish_passing_versions(
    transaction: UseCaseTransaction, model: Model, task: Task, decision: _TaskSettlingDecision
) -> tuple[TaskOut, str | None]:
    """Record a person's decision, and publish held versions that now pass; return the task and
    the next job.
    """
    session, actor, now = transaction.session, transaction.actor, transaction.now
    session.flush()
    # After the flush, since it reads the standings of tasks from the database.
    published = lineage.rejudge_and_publish_held_versions(session, model, now)
    data: AuditData = {
        "model": model.id,
        "number": task.number,
        "from": str(decision.before),
        "reason": decision.reason,
        "published": published,
    }
    record_audit_entry(
        session, actor, AuditedChange(decision.action, task.id, data, model=model.id), now
    )
    session.flush()
    return task_response.build_task_response(
        session, model, task
    ), lineage.find_runnable_queued_job(session, model)


def _make_wrong_task_standing_error(
    model: Model, task: Task, where: TaskStanding, why: str
) -> WrongState:
    name = wording.describe_task_in_words(task)
    text = f"{name[0].upper()}{name[1:]} is {_format_task_standing(where)}. {why}."
    return WrongState(text, extra={"state": str(where), "standing": str(where)})


def _format_task_standing(where: TaskStanding) -> str:
    return str(where).replace("_", " ")
