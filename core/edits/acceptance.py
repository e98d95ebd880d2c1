"""Acceptance of an edit: check its operations against the model as it is, and queue a job for them.

Everything is checked in one transaction under the lock of the model's row, so nothing can change
between the check and the job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.admission.admission import NO_LIMITS, NewJobLimits
from core.contract.edit import EditOut, EditPlanOut, Way
from core.contract.manifest import FEATURES, Manifest
from core.contract.responses.audit import AuditData
from core.contract.responses.recipe import RecipeOut
from core.contract.responses.task_image import Split
from core.database import job_log
from core.database.jobs import build_unfinished_job_condition, record_job_creation
from core.database.kinds import JobKind
from core.database.tables import Edit, Job, Model, Task, Version, VersionPart
from core.edits import listing
from core.edits.image_patterns import expand_image_patterns_in_operations
from core.edits.operation_checks import (
    EditChanges,
    TaskForEditCheck,
    check_and_combine_operations,
    make_emptied_task_error,
)
from core.edits.operations import Operation
from core.edits.rewrite import get_names_of_task_feature_parts
from core.errors import Invalid, WrongState
from core.ids import new_id
from core.jobs.jobs import build_queued_taskless_job, set_job_devices_and_drop_unfit_snapshot
from core.lineage import lineage
from core.lineage.coverage import list_taught_tasks
from core.lineage.standing import read_task_standings
from core.requests import idempotency
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.resources import UseCaseResources
from core.usage import quota

CLOSED_FORM = "analytic"


@dataclass(frozen=True)
class _CheckedEdit:
    """An edit request that passed all checks, with its changes, affected tasks and strategy.

    Attributes:
        head: version that it starts from.
        changes: what it changes.
        tasks: tasks whose data changes, in the order of learning.
        learned_again: tasks that are learned again.
        way: how.
    """

    head: Version
    changes: EditChanges
    tasks: list[int]
    learned_again: list[int]
    way: Way


def plan_edit(
    resources: UseCaseResources, actor: Actor, model: str, operations: Sequence[Operation]
) -> EditPlanOut:
    """Preview an edit of a model's labels, images or classes without applying it."""
    resolved = expand_image_patterns_in_operations(resources, actor, model, operations)
    with resources.db.read() as session:
        row = find_model(session, actor, model)
        checked = _check_requested_edit(session, row, resolved)
        return _build_edit_plan_response(checked, resolved)


@dataclass(frozen=True)
class EditRequest:
    """A user's request to edit labels, images or classes of a model.

    Attributes:
        model: id or name.
        reason: reason given by a person.
        parent: version that the numbers of images refer to; None: the newest one.
        repeat: idempotency key, if the request has one.
    """

    model: str
    operations: Sequence[Operation]
    reason: str | None = None
    parent: int | None = None
    repeat: idempotency.IdempotentRequestIdentity | None = None


def accept_edit(
    resources: UseCaseResources,
    actor: Actor,
    request: EditRequest,
    limits: NewJobLimits = NO_LIMITS,
) -> tuple[EditOut, bool]:
    """Accept an edit request: queue a job that makes a new version with changed labels, images or
    classes.

    Returns:
        The edit, and True if this repeats the response to an earlier request.

    Raises:
        NotFound: there is no such model, task, image or class.
        Invalid: the operations contradict each other, or the model cannot take them.
        WrongState: the lineage is stopped or does not go on from `parent`, another edit is open, a
            task is not learned, or neither images nor features are kept that the edit needs.
        IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
        TooManyRequests: the owner has no room for another open job.
    """
    model, repeat, parent = request.model, request.repeat, request.parent
    with resources.db.read() as session:
        # Before patterns are resolved: the first request may have removed what they match.
        replay = idempotency.find_earlier_response(session, actor, repeat)
    if replay is not None:
        return cast(EditOut, replay.body), True
    resolved = expand_image_patterns_in_operations(resources, actor, model, request.operations)
    with resources.db.write() as session:
        row = find_model(session, actor, model, lock=True)
        # Again under the lock, since the same request may have been accepted meanwhile.
        replay = idempotency.find_earlier_response(session, actor, repeat)
        if replay is not None:
            return cast(EditOut, replay.body), True
        checked = _check_requested_edit(session, row, resolved)
        if parent not in (None, checked.head.number):
            raise WrongState(
                f"The model continues from version {checked.head.number} now, and the edit is meant "
                f"for version {parent}, whose images may have other numbers. Look again.",
                extra={"version": checked.head.number},
            )
        now = resources.db.now(session)
        job = _queue_edit_job(session, row, checked, now)
        last = session.scalar(select(func.max(Edit.number)).where(Edit.model_id == row.id))
        edit = Edit(
            id=new_id("edt"),
            model_id=row.id,
            number=(last or 0) + 1,
            job_id=job.id,
            operations=[one.model_dump(by_alias=True, exclude_none=True) for one in resolved],
            way=checked.way,
            tasks=checked.tasks,
            parent=checked.head.number,
            reason=request.reason,
            version=None,
            journal=None,
            undo_until=None,
            undone_at=None,
            created_at=now,
        )
        session.add(edit)
        session.flush()
        data: AuditData = {
            "model": row.id,
            "edit": edit.number,
            "operations": len(resolved),
            "tasks": checked.tasks,
            "reason": request.reason,
        }
        record_audit_entry(
            session, actor, AuditedChange("edit.create", edit.id, data, model=row.id), now
        )
        session.flush()
        response = listing.build_edit_response(session, edit)
        location = {"Location": f"/v1/models/{model}/edits/{edit.number}"}
        stored_response = idempotency.IdempotentResponse(202, location, response)
        idempotency.store_idempotent_response(session, actor, repeat, stored_response, now)
        # At the end of the transaction, since it locks the owner's row.
        quota.require_added_job_within_limit(session, row.owner_id, limits.max_open_jobs)
        return response, False


def read_tasks_with_taught_first(
    session: Session, model: Model, manifest: Manifest
) -> dict[int, TaskForEditCheck]:
    """Read a model's tasks by number; those that a given version was taught come first, in
    order.
    """
    rows = list(session.scalars(select(Task).where(Task.model_id == model.id)))
    standings = read_task_standings(session, model.id, rows)
    by_number = {row.number: row for row in rows}
    taught = list_taught_tasks(manifest)
    untaught = sorted(by_number.keys() - set(taught))
    return {
        number: _build_task_for_edit_check(by_number[number], str(standings[number]))
        for number in (*taught, *untaught)
        if number in by_number
    }


def _build_task_for_edit_check(task: Task, standing: str) -> TaskForEditCheck:
    is_deleted = task.data_deleted_at is not None
    sizes: dict[Split, int] = {"train": task.n_train or 0, "held_out": 0}
    if task.held_out_sha256 is not None and task.held_out_deleted_at is None:
        sizes["held_out"] = task.n_held_out or 0
    return TaskForEditCheck(task.number, frozenset(task.classes), sizes, standing, is_deleted)


def _check_requested_edit(
    session: Session, model: Model, operations: Sequence[Operation]
) -> _CheckedEdit:
    _require_lineage_open_for_edit(session, model)
    head = lineage.find_version_next_task_starts_from(session, model)
    if head is None or head.number == 0:
        raise WrongState("The model was not taught anything yet, so there is nothing to edit.")
    if model.problem is not None:
        raise Invalid(f"Models of the problem {model.problem} cannot be edited.")
    tasks = read_tasks_with_taught_first(session, model, head.manifest)
    taught = {number: tasks[number] for number in list_taught_tasks(head.manifest)}
    head_classes = list(model.classes or head.manifest.classes or [])
    changes = check_and_combine_operations(operations, model.scenario, tasks, head_classes)
    edited = changes.list_changed_tasks(taught)
    if not edited:
        raise Invalid("The operations change no image of the newest version.")
    for number in edited:
        # Classes can be changed in the head alone, without data; single images cannot.
        if taught[number].is_deleted and not changes.changes_only_classes:
            raise WrongState(
                f"The data of task {number} was deleted, and it has images of a class that the "
                f"operations change.",
                extra={"task": number},
            )
    way, tasks_to_relearn = _choose_edit_strategy(
        session, model, head, changes, list(taught), edited
    )
    # A patch learns no task again, so it may leave a task without any class.
    if way == "patch":
        changes = changes.drop_tasks_left_without_classes(taught)
    else:
        for number in edited:
            if changes.leaves_task_without_images(taught[number]):
                raise make_emptied_task_error(number)
    return _CheckedEdit(head, changes, edited, tasks_to_relearn, way)


def _require_lineage_open_for_edit(session: Session, model: Model) -> None:
    """Raise an error if a task blocks the model's lineage or another edit is still open."""
    stopping = session.scalar(
        select(Task.number).where(Task.model_id == model.id, Task.stops).limit(1)
    )
    if stopping is not None:
        raise WrongState(
            f"The line is stopped at task {stopping}: settle it first.", extra={"task": stopping}
        )
    open_edit = session.execute(
        select(Edit.number, Job.id, Job.state)
        .join(Job, Job.id == Edit.job_id)
        .where(Edit.model_id == model.id, build_unfinished_job_condition(Job.state))
        .limit(1)
    ).one_or_none()
    if open_edit is not None:
        raise WrongState(
            f"Edit {open_edit.number} is {open_edit.state}: wait for its job {open_edit.id}, or "
            f"cancel it.",
            extra={"state": open_edit.state, "job": open_edit.id},
        )


def _choose_edit_strategy(
    session: Session,
    model: Model,
    head: Version,
    changes: EditChanges,
    taught: list[int],
    edited: list[int],
) -> tuple[Way, list[int]]:
    """Choose the strategy of an edit (recompute, relearn, patch or rename), and the tasks to learn
    again.
    """
    if _can_recompute_from_features(session, model, head, edited):
        return "recompute", edited
    start = find_version_to_relearn_from(session, model, head, edited[0])
    tasks_to_relearn = taught[len(list_taught_tasks(start.manifest)) :]
    tasks_without_images = _list_tasks_without_training_images(session, model, tasks_to_relearn)
    if not tasks_without_images:
        return "relearn", tasks_to_relearn
    if changes.is_only_renaming_classes(head.manifest.classes or []):
        return "rename", []
    if changes.changes_only_classes:
        return "patch", []
    method = head.manifest.method.name if head.manifest.method is not None else "?"
    listed = ", ".join(map(str, tasks_without_images[:10]))
    raise WrongState(
        f"This edit needs the training images of tasks {listed}, which are not kept any more, and "
        f"the version has no features of all their images. What would have been needed: method "
        f'`{CLOSED_FORM}` with "keep": "features" (this version: {method}), or a longer '
        f"`training_data_days`. Whole classes can still be renamed, merged or dropped.",
        extra={"tasks": tasks_without_images},
    )


def find_version_to_relearn_from(
    session: Session, model: Model, head: Version, first: int
) -> Version:
    """Find the nearest ancestor that was taught only tasks before `first`, to learn again from
    there.

    It is the nearest ancestor of the head that was taught tasks before `first` alone, in the head's
    order. After an edit that learned tasks again, no version has some of these tasks.
    """
    taught = list_taught_tasks(head.manifest)
    before = taught[: taught.index(first)]
    version = head
    while (version_tasks := list_taught_tasks(version.manifest)) != before[: len(version_tasks)]:
        parent = lineage.find_version_by_number(session, model, version.parent or 0)
        assert parent is not None, "version 0 was taught nothing"
        version = parent
    return version


def _can_recompute_from_features(
    session: Session, model: Model, head: Version, edited: list[int]
) -> bool:
    """Return True if the edited version can be recomputed from stored features of all edited
    images.
    """
    made_by = head.manifest.method
    if made_by is None or made_by.name != CLOSED_FORM or made_by.hyper.get("adapt") is not None:
        return False
    parts = find_feature_version_parts_by_name(session, model, head, edited)
    return all(
        get_names_of_task_feature_parts(number)[0] in parts
        and parts[get_names_of_task_feature_parts(number)[0]].keeps_all
        for number in edited
    )


@dataclass(frozen=True)
class FeatureVersionPart:
    """A stored part with image features; `keeps_all`: it covers every training image of its
    task.
    """

    part: VersionPart
    keeps_all: bool


def find_feature_version_parts_by_name(
    session: Session, model: Model, head: Version, tasks: Sequence[int]
) -> dict[str, FeatureVersionPart]:
    """Return the parts with stored features of some tasks by name, as the lineage up to `head` has
    them.
    """
    names = {name for task in tasks for name in get_names_of_task_feature_parts(task)}
    versions = select(Version.number, Version.parent).where(Version.model_id == model.id)
    parents = {number: parent for number, parent in session.execute(versions)}
    query = (
        select(Version.number, Version.manifest, VersionPart)
        .join(VersionPart, VersionPart.version_id == Version.id)
        .where(
            Version.model_id == model.id,
            VersionPart.type == FEATURES,
            VersionPart.deleted_at.is_(None),
            VersionPart.name.in_(names),
        )
    )
    by_version: dict[int, list[FeatureVersionPart]] = {}
    for number, manifest, part in session.execute(query):
        keeps = manifest.method is not None and manifest.method.hyper.get("keep") == "features"
        by_version.setdefault(number, []).append(FeatureVersionPart(part, keeps))
    parts: dict[str, FeatureVersionPart] = {}
    ancestor: int | None = head.number
    # From the newest version back: an edited task's parts are those of its last edit.
    while ancestor is not None:
        ancestor_parts = {each.part.name: each for each in by_version.get(ancestor, [])}
        for task in tasks:
            main, remainder = get_names_of_task_feature_parts(task)
            if main in ancestor_parts and main not in parts:
                parts |= {
                    name: ancestor_parts[name]
                    for name in (main, remainder)
                    if name in ancestor_parts
                }
        ancestor = parents.get(ancestor)
    return parts


def _list_tasks_without_training_images(
    session: Session, model: Model, tasks: list[int]
) -> list[int]:
    retention_conditions = (
        Task.train_sha256.is_not(None),
        Task.train_deleted_at.is_(None),
        Task.data_deleted_at.is_(None),
    )
    query = select(Task.number).where(
        Task.model_id == model.id, Task.number.in_(tasks), *retention_conditions
    )
    return sorted(set(tasks) - set(session.scalars(query)))


def _queue_edit_job(session: Session, model: Model, checked: _CheckedEdit, now: float) -> Job:
    """Queue the job of an accepted edit ahead of the model's waiting batches."""
    recipe: RecipeOut = checked.head.manifest.recipe.to_json()  # type: ignore[union-attr, assignment]
    job = build_queued_taskless_job(model, JobKind.EDIT, {}, recipe, now)
    dropped = checked.changes.dropped
    affected_tasks = [n for n in checked.learned_again or checked.tasks if n not in dropped]
    taught = [n for n in list_taught_tasks(checked.head.manifest) if n not in dropped]
    if not taught:
        raise Invalid("The model would have no task left. Delete the model instead.")
    # Sums are solved when a task is learned, if only an unchanged one.
    last = (affected_tasks or taught)[-1]
    task = select(Task.id).where(Task.model_id == model.id, Task.number == last)
    job.task_id, job.task_number = session.scalar(task), last
    job.place, job.again = model.next_place, True
    model.next_place += 1
    set_job_devices_and_drop_unfit_snapshot(job)
    session.add(job)
    session.flush()
    learned_again = _format_task_count_with_verb(len(checked.learned_again))
    how = {
        "recompute": "kept features are summed up again",
        "relearn": f"{learned_again} learned again from kept images",
        "rename": "only names of classes change",
        "patch": "rows of the classifier change, and nothing is learned",
    }[checked.way]
    text = f"{_format_task_count_with_verb(len(checked.tasks))} edited: {how}."
    job_log.add_job_log_line(session, job.id, ("info", text), now)
    record_job_creation(session, job, now, {})
    return job


def _build_edit_plan_response(
    checked: _CheckedEdit, operations: Sequence[Operation]
) -> EditPlanOut:
    head_classes = checked.head.manifest.classes or []
    changed = checked.changes.classes
    added = {
        label
        for edits in checked.changes.images.values()
        for label in edits.values()
        if label is not None
    }
    after = ({changed.get(name, name) for name in head_classes} | added) - {None}
    return {
        "parent": checked.head.number,
        "way": checked.way,
        "approximation": _describe_inexactness_of_patching_edit(checked),
        "tasks": checked.tasks,
        "learned_again": checked.learned_again,
        "classes_before": len(head_classes),
        "classes_after": len(after),
        "operations": len(operations),
        "can_undo": not checked.changes.removes_images,
    }


def _describe_inexactness_of_patching_edit(checked: _CheckedEdit) -> str | None:
    """Describe what is only approximate when an edit is made by patching; None for other
    strategies.
    """
    if checked.way != "patch":
        return None
    made_by = checked.head.manifest.method
    head_classes = checked.head.manifest.classes or []
    sources = checked.changes.list_class_sources(head_classes)
    # A former class that is the source of no present class was dropped.
    drops = sum(map(len, sources.values())) < len(head_classes)
    merges = any(len(numbers) > 1 for numbers in sources.values())
    texts: list[str] = []
    if made_by is not None and made_by.name == CLOSED_FORM:
        if merges:
            texts.append(
                "Sums of merged classes add up: merging is exact but for rounding. A head, strength "
                "or shrinkage that images chose stays as it was chosen."
            )
        if drops:
            texts.append(
                "What a dropped class added to the sums over all classes is not known, and taken "
                "for its share of the scatter within classes."
            )
    else:
        if merges:
            texts.append(
                "A merged class gets the mean of its former rows. Then the head is fitted to "
                "remembered images, if there are any."
            )
        if drops:
            texts.append(
                "A dropped class is no longer predicted, and what it taught the network stays."
            )
    return " ".join(texts)


def _format_task_count_with_verb(count: int) -> str:
    return "1 task is" if count == 1 else f"{count} tasks are"
