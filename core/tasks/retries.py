"""Retries: a failed or cancelled job, a held version, or a task that the lineage lacks is learned
again.

A retry keeps the place of its task in the lineage, comes before all waiting tasks, and runs while
the lineage is stopped.
"""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.admission.admission import (
    NO_LIMITS,
    AdmissionLimits,
    NewJobLimits,
    count_tasks_and_images_of_job,
)
from core.admission.applicability import check_next_task_recipe_and_list_warnings
from core.bases import pretrained
from core.contract.catalogue import RecipeCatalogue
from core.contract.patch import RecipePatch
from core.contract.responses.audit import AuditData
from core.contract.responses.job import JobOut
from core.contract.responses.recipe import RecipeOut
from core.database import job_log
from core.database.jobs import (
    build_unfinished_job_condition,
    change_job_state,
    is_job_rejected_for_findings,
    record_job_creation,
)
from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import JobAction, JobState, find_next_job_state
from core.database.tables import Job, Model, Task, Version
from core.errors import WrongState
from core.jobs.job_response import build_job_response
from core.jobs.job_retry import requeue_ended_job
from core.jobs.jobs import (
    build_queued_task_job,
    lock_visible_job,
    make_missing_job_error,
    set_job_devices_and_drop_unfit_snapshot,
)
from core.lineage import lineage, wording
from core.lineage.standing import TaskStanding
from core.recipe.resolve import resolve_recipe
from core.recipe.stored_patch import build_stored_recipe_override
from core.requests.actor import Actor
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.timestamps import format_rfc3339
from core.trials.rows import remove_trials_from_job, reset_all_trials
from core.usage import quota


@dataclass(frozen=True)
class TaskRelearnContext:
    """Request to learn a task again; the caller holds a lock on the model's row.

    Attributes:
        job: its newest job, or the job whose retry is requested.
        override: recipe override in place of that of `job`; None keeps it.
        now: seconds since 1970.
    """

    session: Session
    actor: Actor
    catalogue: RecipeCatalogue
    model: Model
    task: Task
    job: Job
    override: RecipePatch | None
    now: float
    admission: AdmissionLimits


def retry_job(
    db: Database,
    catalogue: RecipeCatalogue,
    actor: Actor,
    job_id: str,
    override: RecipePatch | None,
    limits: NewJobLimits = NO_LIMITS,
) -> tuple[JobOut, bool]:
    """Retry a job that has ended: learn its task again, or download weights again.

    A task is learned again after a failed or cancelled job, a job whose recipe held its data, or a
    version that its gate held. It keeps its place, and runs while the lineage is stopped. A failed
    or cancelled job is queued again. A held version keeps its job; a new job of the same task is
    made, once: a second request returns the open job.

    Args:
        override: recipe override in place of the one that the batch was submitted with. None keeps
            it; a job that its recipe held gets `data_report` "warn" then.

    Returns:
        The job, and True if there is something new to do.

    Raises:
        NotFound: no such job is visible to the caller.
        WrongState: it is neither failed, cancelled nor held; its task was learned since; or its
            training data is gone.
        InvalidRecipe: the recipe cannot be used.
        JobTooLarge: the job exceeds the limits.
        TooManyRequests: the owner may not have one more open job.
    """
    override = None if override is None else build_stored_recipe_override(catalogue, override)
    with db.write() as session:
        # Locked in the order of a publish (job, model, task); another order could deadlock.
        job = lock_visible_job(session, actor, job_id)
        model = lineage.lock_model_row(session, job.model_id)
        if model.deleted_at is not None:
            raise make_missing_job_error(job_id)
        now = db.now(session)
        if job.task_id is None or job.kind == JobKind.EDIT:
            is_new = _retry_job_without_task(session, actor, model, job, limits.max_open_jobs, now)
            return build_job_response(session, job), is_new
        task = session.get_one(Task, job.task_id, with_for_update=True, populate_existing=True)
        open_one = _find_open_job(session, task)
        if open_one is None:
            relearning = TaskRelearnContext(
                session, actor, catalogue, model, task, job, override, now, limits.admission
            )
            fresh = _retry_or_relearn_task(relearning)
            session.flush()
            # After the flush, since it counts the owner's jobs in the database.
            quota.require_added_job_within_limit(session, model.owner_id, limits.max_open_jobs)
            return build_job_response(session, fresh), True
        if open_one.id != job.id and job.state != JobState.SUCCEEDED:
            raise WrongState(
                f"Job {open_one.id} learns this task again.", extra={"state": str(job.state)}
            )
        # raises for a state that allows no retry, and else changes nothing
        state = find_next_job_state(open_one.state, JobAction.RETRY)
        if (
            job.state != JobState.SUCCEEDED
            and override is not None
            and override != job.recipe_override
        ):
            raise WrongState(
                f"The job is {state} already; its recipe cannot change now.",
                extra={"state": str(state)},
            )
        return build_job_response(session, open_one), False


def _retry_job_without_task(
    session: Session, actor: Actor, model: Model, job: Job, max_open_jobs: int, now: float
) -> bool:
    """Retry a job that belongs to no task; return True if there is something new to do."""
    if job.kind == JobKind.FETCH:
        return pretrained.retry_weights_download_job(session, actor, model, job, max_open_jobs, now)
    if job.kind == JobKind.EXPORT:
        return requeue_ended_job(session, actor, model, job, max_open_jobs, now)
    if job.kind == JobKind.EDIT:
        raise WrongState(
            "An edit is not retried, since the model may have changed by now. Send it again.",
            extra={"state": str(job.state)},
        )
    raise WrongState(
        f"A job of the kind {job.kind} is not retried, since what it worked on is deleted when it "
        "ends: send the request again.",
        extra={"state": str(job.state)},
    )


def _retry_or_relearn_task(relearning: TaskRelearnContext) -> Job:
    task, job = relearning.task, relearning.job
    if task.standing == TaskStanding.LEARNED:
        raise WrongState(
            f"Task {task.number} is learned: version {relearning.model.head}, from which the lineage "
            f"continues, was taught it.",
            extra={"state": str(job.state)},
        )
    if job.state == JobState.SUCCEEDED:
        status = relearning.session.scalar(select(Version.status).where(Version.job_id == job.id))
        if status != "held":
            raise WrongState(
                f"The job has succeeded and its version is published. Task {task.number} is "
                f"{task.standing}: learn it again with POST "
                f"/v1/models/{relearning.model.name}/tasks/{task.number}/relearn.",
                extra={"state": str(job.state)},
            )
        return create_relearning_job(relearning)
    if job.state == JobState.REJECTED and not is_job_rejected_for_findings(job):
        raise WrongState(
            "The batch was rejected, and would be again: correct it and send it as a new task.",
            extra={"state": str(job.state)},
        )
    # Called only for its error, if a job in this state cannot be retried.
    find_next_job_state(job.state, JobAction.RETRY)
    _requeue_job_with_present_recipe(relearning)
    return job


def _requeue_job_with_present_recipe(relearning: TaskRelearnContext) -> None:
    """Queue a finished job itself again, with the present recipe and gate of its model."""
    session, model, job = relearning.session, relearning.model, relearning.job
    before = job.state
    patch = _choose_recipe_override(relearning)
    # Now, since it depends on the state and the error, which are replaced below.
    was_held = is_job_rejected_for_findings(job)
    # A retry means that the person has seen the findings.
    if relearning.override is None and was_held:
        patch = {**patch, "data_report": "warn"}
    former, parent = _copy_recipe_without_resources(job.recipe), job.parent_version
    job.recipe_override, job.recipe, job.gate = (
        patch,
        _check_and_resolve_relearn_recipe(relearning, patch),
        model.gate,
    )
    if relearning.override is not None:
        remove_trials_from_job(session, job)
    elif job.choose is not None:
        _start_trials_again(relearning, was_held)
    if was_held and job.recipe.get("data_report") != "hold":
        _mark_task_findings_as_settled(relearning.task)
    # A new place makes this the newest job of its task again.
    job.place, job.again = model.next_place, True
    model.next_place += 1
    # A person has asked, so that former failures do not count.
    job.strikes, job.out_of_memory, job.error, job.progress = 0, 0, None, {}
    if parent != model.head or former != _copy_recipe_without_resources(job.recipe):
        job.resume_on = None  # its snapshot is not used, so that it may run anywhere
    set_job_devices_and_drop_unfit_snapshot(job)
    # The parent is chosen at the next claim; a snapshot of another parent or recipe is ignored
    # then.
    job.not_before = job.parent_version = job.anytime = None
    change_job_state(session, job, JobAction.RETRY, relearning.now)
    audit_data: AuditData = {"from": before, "to": job.state}
    record_audit_entry(
        session,
        relearning.actor,
        AuditedChange("job.retry", job.id, audit_data, model=model.id),
        relearning.now,
    )


def _start_trials_again(relearning: TaskRelearnContext, was_held: bool) -> None:
    """Queue the trials of a job again, with the present recipe of its model."""

    def resolve_changed_recipe(override: RecipePatch) -> tuple[RecipePatch, RecipeOut]:
        patch = {**override, "data_report": "warn"} if was_held else override
        return patch, _check_and_resolve_relearn_recipe(relearning, patch)

    reset_all_trials(relearning.session, relearning.job, resolve_changed_recipe)


def _mark_task_findings_as_settled(task: Task) -> None:
    """Record that the findings that held a batch are settled: they neither hold it nor warn again."""
    findings = task.report.get("data", {}).get("findings", [])
    settled_kinds = {one["kind"] for one in findings if one["holds"]} | set(
        task.report.get("settled", [])
    )
    task.report = {**task.report, "settled": sorted(settled_kinds)}


def _copy_recipe_without_resources(recipe: RecipeOut) -> dict[str, object]:
    return {name: value for name, value in recipe.items() if name != "resources"}


def create_relearning_job(relearning: TaskRelearnContext, action: str = "job.retry") -> Job:
    """Create a new job that learns again a task which already made a version.

    Raises:
        WrongState: its training data is gone.
        InvalidRecipe: the recipe cannot be used.
    """
    session, model, task, last, now = (
        relearning.session,
        relearning.model,
        relearning.task,
        relearning.job,
        relearning.now,
    )
    patch = _choose_recipe_override(relearning)
    fresh = build_queued_task_job(
        model,
        task,
        patch,
        _check_and_resolve_relearn_recipe(relearning, patch),
        now,
        retry_of=last.id,
    )
    session.add(fresh)
    # The log line below refers to the new row by its id.
    session.flush()
    text = f"Task {task.number} is learned again, after job {last.id}: the job waits for a worker."
    job_log.add_job_log_line(session, fresh.id, ("info", text), now)
    if task.held_out_deleted_at is not None:
        text = (
            "Its held-out images are gone: the new version is not measured on this task, and "
            "limits on it pass."
        )
        job_log.add_job_log_line(session, fresh.id, ("warning", text), now)
    record_job_creation(session, fresh, now, {"retry_of": last.id})
    data: AuditData = {"retry_of": last.id, "task": task.number}
    record_audit_entry(
        session, relearning.actor, AuditedChange(action, fresh.id, data, model=model.id), now
    )
    return fresh


def _choose_recipe_override(relearning: TaskRelearnContext) -> RecipePatch:
    return relearning.job.recipe_override if relearning.override is None else relearning.override


def _check_and_resolve_relearn_recipe(
    relearning: TaskRelearnContext, patch: RecipePatch
) -> RecipeOut:
    """Return the complete recipe for learning a task again, after checking that its images exist
    and the job may run.
    """
    session, model, task = relearning.session, relearning.model, relearning.task
    _require_stored_training_images(task, relearning.job)
    recipe = resolve_recipe(
        relearning.catalogue,
        model.scenario,
        model.recipe,
        patch,
        architecture=model.architecture,
        problem=model.problem,
    ).recipe
    # Called only for its errors: the task's sender has seen the warnings.
    check_next_task_recipe_and_list_warnings(
        session,
        relearning.catalogue,
        model,
        lineage.find_version_next_task_starts_from(session, model),
        recipe,
    )
    work = count_tasks_and_images_of_job(session, model, task.number)
    relearning.admission.check_job_memory(
        relearning.catalogue, model.architecture, model.image, recipe, work
    )
    return recipe


def _find_open_job(session: Session, task: Task) -> Job | None:
    query = select(Job).where(
        Job.model_id == task.model_id,
        build_unfinished_job_condition(Job.state),
        Job.task_id == task.id,
    )
    return session.scalar(query.limit(1))


def find_newest_job_of_task(session: Session, task: Task) -> Job:
    """Return the newest job of a task that learned it or was to learn it; every task has one."""
    its_own = Job.task_id == task.id, Job.kind != str(JobKind.EDIT)
    query = select(Job).where(*its_own).order_by(Job.place.desc()).limit(1)
    return session.scalars(query).one()


def _require_stored_training_images(task: Task, job: Job) -> None:
    if wording.can_relearn_task(task):
        return
    deleted_at = task.data_deleted_at if task.data_deleted_at is not None else task.train_deleted_at
    when = "" if deleted_at is None else f" on {wording.format_date(deleted_at)}"
    raise WrongState(
        f"The training data of task {task.number} went{when}: send the batch again.",
        extra={"state": str(job.state), "training_data_deleted_at": format_rfc3339(deleted_at)},
    )
