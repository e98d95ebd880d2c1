"""All changes of a model's lineage: publish, hold, promote, roll back, skip, discard, judge.

The lineage head (`Model.head`) is the version that the next task starts from. While production
follows the lineage, it points to the head. A rollback moves both back and pins production; later
versions then move only the head. Each function is called with the model's row locked, writes
standings, aliases and their history together, and reports lost tasks.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from core.contract.responses.owner_event import AliasMoved
from core.database import owner_events
from core.database.jobs import build_unfinished_job_condition
from core.database.states import JobState
from core.database.tables import Alias, AliasMove, AuditEntry, Job, Model, Task, Version
from core.lineage import wording
from core.lineage.coverage import is_one_class_version, list_taught_tasks
from core.lineage.judgement import judge_version_by_gate
from core.lineage.standing import (
    ENDED,
    TaskStanding,
    read_unfinished_job_states_by_task,
    set_task_standing,
)

PRODUCTION, LATEST = "production", "latest"
DAY_S = 86_400.0
STOP = "stop"
_REPLACED = frozenset({None, TaskStanding.REJECTED, TaskStanding.FAILED, TaskStanding.CANCELLED})
"""Standings that the end of a job replaces, since no version was made of the task yet."""


@dataclass(frozen=True)
class AliasMoveOrigin:
    """Cause and author of a move of a model alias such as `production`.

    Attributes:
        cause: create, publish, set, rollback or follow.
        actor: id of a key; None for a worker.
        reason: reason given by a person.
    """

    cause: str
    actor: str | None = None
    reason: str | None = None


PUBLISH = AliasMoveOrigin("publish")


def lock_model_row(session: Session, model_id: str) -> Model:
    """Lock the model's row until the transaction ends, and return it as it is now."""
    # The session may have read the row before, when another transaction was changing it.
    return session.get_one(Model, model_id, with_for_update=True, populate_existing=True)


def find_version_by_number(session: Session, model: Model, number: int) -> Version | None:
    """Find a version of the model by number, or None."""
    query = select(Version).where(Version.model_id == model.id, Version.number == number)
    return session.scalars(query).one_or_none()


def read_tasks_by_numbers(
    session: Session, model: Model, numbers: Collection[int], *, with_reports: bool = True
) -> list[Task]:
    """Read the tasks of a model with these numbers, in their order.

    Args:
        with_reports: read the reports as well, which are large.
    """
    query = select(Task).where(Task.model_id == model.id, Task.number.in_(numbers))
    if not with_reports:
        query = query.options(defer(Task.report))
    return list(session.scalars(query.order_by(Task.number)))


def get_lineage_head(session: Session, model: Model) -> Version:
    """Find the head of the model's lineage: the version that the next task starts from."""
    head = find_version_by_number(session, model, model.head)
    assert head is not None, "a head is a version of its model"
    return head


def find_version_next_task_starts_from(session: Session, model: Model) -> Version | None:
    """Find the version that the next task starts from, or None while the model waits for its base
    weights.
    """
    return None if model.base_job is not None else get_lineage_head(session, model)


def publish_version(
    session: Session,
    model: Model,
    task: Task,
    version: Version,
    now: float,
    move_origin: AliasMoveOrigin = PUBLISH,
) -> None:
    """Publish a version: make it the lineage head, and move production to it if that follows.

    While production is version 0, a version that knows only one class does not replace it, since it
    would predict that class for everything. The lineage continues from it, and production moves
    with the next version.
    """
    version.status = "published"
    owner_events.collect_owner_and_webhook_events_of_version(session, model, version, now)
    # Even if production stays where it is, the lineage continues from this version.
    model.head = version.number
    set_task_standing(task, TaskStanding.LEARNED, now)
    _extend_image_retention(model, task, now)
    _move_latest_alias_forward(session, model, version, now)
    if model.production_follows and not is_promotion_withheld_for_one_class(
        session, model, version
    ):
        point_alias_to_version(session, model, PRODUCTION, version.number, now, move_origin)


def is_promotion_withheld_for_one_class(session: Session, model: Model, version: Version) -> bool:
    """Return True if a version is not promoted because it knows only one class and production
    none.
    """
    production = session.get(Alias, (model.id, PRODUCTION))
    has_none = production is None or production.version == 0
    return has_none and version.number > 0 and is_one_class_version(version.manifest)


def stop_lineage_or_skip_held_task(session: Session, model: Model, task: Task, now: float) -> None:
    """Record that a version failed its gate: stop the lineage at its task, or skip the task.

    A task that the lineage head was taught meanwhile remains learned, and a rolled-back one remains
    required.
    """
    if task.number in list_taught_tasks(get_lineage_head(session, model).manifest):
        return
    if model.on_held == STOP:
        set_task_standing(task, TaskStanding.HELD, now, stops=True)
    elif task.standing != TaskStanding.ROLLED_BACK:
        skip_held_task(model, task, now)


def skip_held_task(model: Model, task: Task, now: float) -> None:
    """Skip a task whose version was held by the gate.

    Its training images are retained for the model's period from now on.
    """
    set_task_standing(task, TaskStanding.SKIPPED, now)
    _extend_image_retention(model, task, now)


def mark_task_discarded(model: Model, task: Task, now: float) -> None:
    """Discard a task that is no longer needed."""
    # Images of a held task are retained without an end, so their period begins only now.
    dated = task.standing == TaskStanding.HELD
    set_task_standing(task, TaskStanding.DISCARDED, now)
    if dated:
        _extend_image_retention(model, task, now)


def _extend_image_retention(model: Model, task: Task, now: float) -> None:
    """Extend how long a task's training images are retained: the model's period from now on."""
    until = now + model.training_data_days * DAY_S
    task.train_until = until if task.train_until is None else max(task.train_until, until)


def update_standing_and_rejudge_held_versions(session: Session, job: Job, now: float) -> None:
    """Update the standing of a task whose job has ended without a version.

    The standing follows from the state of the job; a task of which a version was made before keeps
    its standing. Held versions that pass their gate now are published.
    """
    if job.task_id is None:
        return
    # Locked in the order of a publish (job, model, task), so that the two cannot deadlock.
    model = lock_model_row(session, job.model_id)
    task = session.get_one(Task, job.task_id, with_for_update=True, populate_existing=True)
    to = ENDED[JobState(job.state)]
    if task.standing in _REPLACED:
        reaction = {
            TaskStanding.REJECTED: model.on_rejected,
            TaskStanding.FAILED: model.on_failed,
        }.get(to)
        set_task_standing(task, to, now, stops=reaction == STOP)
    session.flush()
    # After the flush, since it reads the standings of tasks from the database.
    rejudge_and_publish_held_versions(session, model, now)


def rejudge_and_publish_held_versions(session: Session, model: Model, now: float) -> list[int]:
    """Judge held versions again after standings of tasks have changed, and publish those that pass.

    Return their numbers.
    """
    # A job may still end after its model was deleted.
    if model.deleted_at is not None:
        return []
    query = select(Task).where(Task.model_id == model.id, Task.standing == str(TaskStanding.HELD))
    # A task that is being learned again will be judged by its new version.
    unfinished = read_unfinished_job_states_by_task(session, model.id)
    passed = []
    # All are read first, since publishing one changes the standings that the query selects by.
    for task in session.scalars(query.order_by(Task.number)).all():
        version = None if task.number in unfinished else find_held_version_of_task(session, task)
        if version is None:
            continue
        gate = judge_version_by_gate(session, model, version)
        # An equal verdict is not written again: each publish judges all held versions.
        if gate != version.gate:
            version.gate = gate
        if gate["passed"]:
            publish_version(session, model, task, version, now)
            version.warnings = [
                *version.warnings,
                wording.describe_published_held_version(version, model),
            ]
            record_publication_in_audit(session, model, version, now, judged="again")
            passed.append(version.number)
    session.flush()
    return passed


def find_held_version_of_task(session: Session, task: Task) -> Version | None:
    """Find the newest version of a task if its gate holds it, else None."""
    query = select(Version).where(
        Version.model_id == task.model_id, Version.task_number == task.number
    )
    # A task that was learned again has older versions, which its newest one replaces.
    newest = session.scalars(query.order_by(Version.number.desc()).limit(1)).one_or_none()
    return newest if newest is not None and newest.status == "held" else None


def promote_version(
    session: Session, model: Model, target: Version, move_origin: AliasMoveOrigin, now: float
) -> list[Task]:
    """Promote a version to production; return the tasks that production lost by the move.

    The newest version of the lineage, and any newer version, make production follow again. An older
    one pins production, and the tasks it was not taught are rolled back. A held version is
    published by the move; if its task still waited for a decision, the lineage continues from it,
    and the tasks that it lacks are skipped. While production is pinned, it may move forward within
    the lineage, which continues undisturbed.
    """
    is_held, head = target.status == "held", model.head
    settles = is_held and _is_held_task_version(session, target)
    if target.number < head and not is_held and _is_forward_production_move(session, model, target):
        point_alias_to_version(session, model, PRODUCTION, target.number, now, move_origin)
        return []
    # A move back pins production: the next version would otherwise undo it within minutes.
    model.head, model.production_follows = target.number, settles or target.number >= head
    if is_held:
        target.status = "published"
        owner_events.collect_owner_and_webhook_events_of_version(session, model, target, now)
        # A new value, since a change inside a JSON column would not be noticed and stored.
        target.gate = {
            **target.gate,
            "overruled": {"key": move_origin.actor, "reason": move_origin.reason},
        }
        _move_latest_alias_forward(session, model, target, now)
        # Not in the job's log: a retry of that job holds its row and waits for the model's, so this
        # could deadlock.
        target.warnings = [
            *target.warnings,
            wording.describe_overruled_gate(target, move_origin.reason or ""),
        ]
    point_alias_to_version(session, model, PRODUCTION, target.number, now, move_origin)
    passed_over = settles or (is_held and target.number > head)
    return _update_standings_after_move(
        session,
        model,
        target,
        now,
        TaskStanding.SKIPPED if passed_over else TaskStanding.ROLLED_BACK,
    )


def _is_held_task_version(session: Session, version: Version) -> bool:
    """Return True if a version is held by its gate and its task waits for the user's decision."""
    query = select(Task.standing).where(
        Task.model_id == version.model_id, Task.number == version.task_number
    )
    return session.scalar(query) == TaskStanding.HELD


def unpin_production_and_move_to_head(
    session: Session, model: Model, move_origin: AliasMoveOrigin, now: float
) -> None:
    """Unpin production: move it to the lineage head, and let it follow from now on."""
    model.production_follows = True
    point_alias_to_version(session, model, PRODUCTION, model.head, now, move_origin)


def move_lineage_head_back(
    session: Session, model: Model, target: Version, move_origin: AliasMoveOrigin, now: float
) -> None:
    """Move the lineage head back to a version, and production if it followed the head.

    Unlike a rollback, production goes on following.
    """
    if model.production_follows:
        promote_version(session, model, target, move_origin, now)
        model.production_follows = True
    else:
        model.head = target.number
        _update_standings_after_move(session, model, target, now, TaskStanding.ROLLED_BACK)


def point_alias_to_version(
    session: Session, model: Model, name: str, number: int, now: float, move_origin: AliasMoveOrigin
) -> Alias:
    """Point a model alias to a version, creating it if needed, and record the move in its history.

    Setting the same target again changes nothing.
    """
    alias = session.get(Alias, (model.id, name), with_for_update=True)
    previous = None if alias is None else alias.version
    if alias is None:
        alias = Alias(model_id=model.id, name=name, version=number, updated_at=now)
        session.add(alias)
    # A repeated request must leave neither a row of history nor an event.
    elif previous == number:
        return alias
    alias.version, alias.updated_at = number, now
    session.add(
        AliasMove(
            model_id=model.id,
            alias=name,
            version=number,
            previous=previous,
            cause=move_origin.cause,
            actor=move_origin.actor,
            reason=move_origin.reason,
            at=now,
        )
    )
    moved: AliasMoved = {
        "alias": name,
        "version": number,
        "previous": previous,
        "cause": move_origin.cause,
    }
    owner_events.collect_owner_and_webhook_events_of_alias(session, model, moved, now)
    return alias


def _move_latest_alias_forward(
    session: Session, model: Model, version: Version, now: float
) -> None:
    """Move the alias `latest` to a version just published, unless a newer one is published."""
    latest = session.get(Alias, (model.id, LATEST))
    if latest is None or latest.version < version.number:
        point_alias_to_version(session, model, LATEST, version.number, now, PUBLISH)


def _is_forward_production_move(session: Session, model: Model, target: Version) -> bool:
    """Return True if moving pinned production to `target` is a step forward within the lineage."""
    production = session.get(Alias, (model.id, PRODUCTION))
    if model.production_follows or production is None or target.number <= production.version:
        return False
    # One query for the whole walk, however many versions lie in between.
    query = select(Version.number, Version.parent).where(
        Version.model_id == model.id, Version.number >= target.number
    )
    parents = {number: parent for number, parent in session.execute(query)}
    number: int | None = model.head
    # Parents have smaller numbers than their children, so the walk ends.
    while number is not None and number > target.number:
        number = parents.get(number)
    return number == target.number


def _update_standings_after_move(
    session: Session, model: Model, head: Version, now: float, lost_as: TaskStanding
) -> list[Task]:
    """Update the tasks' standings after a person moved the lineage head.

    Tasks that the new head was taught are learned; other learned tasks get the standing `lost_as`
    and are returned.
    """
    covered = set(list_taught_tasks(head.manifest))
    query = (
        select(Task)
        .where(Task.model_id == model.id, Task.standing.is_not(None))
        .order_by(Task.number)
    )
    lost_tasks = []
    for task in session.scalars(query.with_for_update()):
        if task.number in covered:
            if task.standing != TaskStanding.LEARNED:
                set_task_standing(task, TaskStanding.LEARNED, now)
                _extend_image_retention(model, task, now)
        # If the lineage goes on without them, rolled-back tasks are not required any more either.
        elif task.standing == TaskStanding.LEARNED or (
            task.standing == TaskStanding.ROLLED_BACK and lost_as == TaskStanding.SKIPPED
        ):
            set_task_standing(task, lost_as, now)
            lost_tasks.append(task)
    session.flush()
    return lost_tasks


def find_runnable_queued_job(session: Session, model: Model) -> str | None:
    """Find a queued job of the model that may run next, to notify workers.

    Return None if there is none.
    """
    query = select(Job.id).where(
        Job.model_id == model.id,
        # Implied by the next condition, but needed for the index of unfinished jobs.
        build_unfinished_job_condition(Job.state),
        Job.state == str(JobState.QUEUED),
        Job.place.is_not(None),
    )
    # In the order in which jobs are claimed (`core.scheduling.claim`).
    return session.scalar(query.order_by(Job.again.desc(), Job.task_number).limit(1))


def record_publication_in_audit(
    session: Session, model: Model, version: Version, now: float, **how: str
) -> None:
    """Record a version's publication in the audit trail.

    Args:
        how: the job or the judgement, by name.
    """
    data = {"model": model.id, "version": version.number, "status": version.status, **how}
    about = {"object": version.id, "model_id": model.id, "data": data}
    row = AuditEntry(at=now, owner_id=model.owner_id, actor=None, action="version.publish", **about)
    session.add(row)
