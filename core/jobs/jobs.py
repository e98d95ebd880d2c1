"""Jobs: list, cancel, pause and resume them.

`core.database.states` alone decides which actions a state allows. Here each action is one transaction
with the change, its event and its audit row.
"""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.patch import RecipePatch
from core.contract.responses.audit import AuditData
from core.contract.responses.job import JobOut, JobPage
from core.contract.responses.recipe import RecipeOut
from core.database.jobs import change_job_state, lock_job
from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import JobAction, JobState
from core.database.tables import Job, Model, Task
from core.errors import Invalid, NotFound
from core.ids import is_id, new_id
from core.jobs.job_response import build_job_response, job_to_json, read_job_response_contexts
from core.lineage import lineage
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, read_query_page


def make_missing_job_error(job_id: str) -> NotFound:
    """Return the error for a job that does not exist or that the caller does not see."""
    return NotFound(f"There is no job {job_id[:60]!r}.")


@dataclass(frozen=True)
class JobFilter:
    """Filter for a list of jobs by state, model or kind; None means any.

    Attributes:
        model: id or name of the model.
    """

    state: str | None = None
    model: str | None = None
    kind: JobKind | None = None


ALL = JobFilter()


def list_jobs(
    db: Database, actor: Actor, job_filter: JobFilter = ALL, *, limit: int, cursor: str | None
) -> JobPage:
    """Return a page of the jobs that the caller sees, newest first.

    Raises:
        NotFound: the named model does not exist for the caller.
        Invalid: the state is unknown.
    """
    state, model, kind = job_filter.state, job_filter.model, job_filter.kind
    if state is not None and state not in set(JobState):
        raise Invalid(
            f"Unknown state {state[:40]!r}.", fields=[{"field": "state", "message": "unknown"}]
        )
    with db.read() as session:
        query = select(Job) if kind is None else select(Job).where(Job.kind == str(kind))
        if model is not None:
            # A single model has few jobs. The concatenation keeps the planner from preferring an
            # index on owners or states.
            query = query.where(Job.model_id == find_model(session, actor, model).id)
            query = query if state is None else query.where(Job.state + "" == state)
        else:
            query = query.where(actor.build_visible_condition(Job.owner_id))
            query = query if state is None else query.where(Job.state == state)
        jobs: ListPage[Job] = read_query_page(
            session, query, Job.id, limit, cursor, descending=True
        )
        job_asides = read_job_response_contexts(session, jobs.rows)
        items = [job_to_json(job, job_asides[job.id]) for job in jobs.rows]
        return {"items": items, "next_cursor": jobs.next_cursor}


def read_job(db: Database, actor: Actor, job_id: str) -> JobOut:
    """Return one job that the caller sees, in the JSON form of the API.

    Raises:
        NotFound: the caller sees no such job.
    """
    with db.read() as session:
        job = session.get(Job, job_id) if is_id(job_id, "job") else None
        if job is None or not actor.can_see(job.owner_id):
            raise make_missing_job_error(job_id)
        return build_job_response(session, job)


def apply_job_action(db: Database, actor: Actor, job_id: str, action: JobAction) -> JobOut:
    """Cancel, pause or resume a job for its caller; repeating an action changes nothing.

    Raises:
        NotFound: the caller sees no such job.
        WrongState: the action is not possible now; `extra["state"]` is the present state.
    """
    with db.write() as session:
        job = lock_visible_job(session, actor, job_id)
        now = db.now(session)
        before = job.state
        state = change_job_state(session, job, action, now)
        # A repeated action is no change and leaves no audit row.
        if job.state != before:
            data: AuditData = {"from": before, "to": job.state}
            record_audit_entry(
                session,
                actor,
                AuditedChange(f"job.{action}", job.id, data, model=job.model_id),
                now,
            )
        # A waiting job ends here; the end of a running one is recorded when its worker has stopped
        # it.
        if state is JobState.CANCELLED and before != JobState.CANCELLED:
            lineage.update_standing_and_rejudge_held_versions(session, job, now)
        return build_job_response(session, job)


def build_queued_task_job(
    model: Model,
    task: Task,
    override: RecipePatch,
    recipe: RecipeOut,
    now: float,
    *,
    retry_of: str | None = None,
) -> Job:
    """Build a new queued job for a task, at the task's place in the model's lineage.

    The caller holds the lock on the model's row.
    """
    job = build_queued_taskless_job(model, JobKind.LEARN, override, recipe, now)
    job.task_id, job.task_number = task.id, task.number
    job.place, job.again = model.next_place, retry_of is not None
    job.retry_of = retry_of
    model.next_place += 1
    set_job_devices_and_drop_unfit_snapshot(job)
    return job


def set_job_devices_and_drop_unfit_snapshot(job: Job) -> None:
    """Copy the devices that a job's recipe asks for into the columns by which workers claim jobs.

    A snapshot from another kind of device is dropped, unless the recipe lets it resume anywhere.
    """
    resources = job.recipe.get("resources", {})
    job.device, job.gpus = resources.get("device", "any"), resources.get("gpus", 1)
    if resources.get("resume") == "any":
        job.resume_on = None
    elif job.resume_on is not None and job.device not in ("any", job.resume_on):
        job.snapshot = job.resume_on = None  # the sweep removes the files of the snapshot


def build_queued_taskless_job(
    model: Model, kind: str, override: RecipePatch, recipe: RecipeOut, now: float
) -> Job:
    """Build a new queued job that belongs to no task and waits for none.

    Args:
        kind: kind of the job, see `core.execution.kinds`.
    """
    return Job(
        id=new_id("job"),
        kind=str(kind),
        model_id=model.id,
        owner_id=model.owner_id,
        task_id=None,
        task_number=None,
        place=None,
        again=False,
        state=str(JobState.QUEUED),
        revision=1,
        recipe_override=override,
        recipe=recipe,
        # As it is now: a later change of the gate applies to later jobs.
        gate=model.gate,
        retry_of=None,
        attempt=0,
        strikes=0,
        out_of_memory=0,
        device="any",
        gpus=1,
        resume_on=None,
        fence=None,
        worker=None,
        lease_until=None,
        rung_at=None,
        not_before=None,
        parent_version=None,
        snapshot=None,
        anytime=None,
        progress={},
        error=None,
        version=None,
        report=None,
        choose=None,
        chosen_trial=None,
        choose_until=None,
        trial_budget_s=None,
        archive_key=None,
        archive_sha256=None,
        archive_bytes=None,
        created_at=now,
        started_at=None,
        finished_at=None,
    )


def lock_visible_job(session: Session, actor: Actor, job_id: str) -> Job:
    """Find a job that the caller sees by its id, and lock its row.

    Raises:
        NotFound: the caller sees no such job.
    """
    job = lock_job(session, job_id) if is_id(job_id, "job") else None
    if job is None or not actor.can_see(job.owner_id):
        raise make_missing_job_error(job_id)
    return job
