"""Items in a model that wait for a person, and the requests that settle them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session, aliased, defer

from core.bases import pretrained
from core.contract.gate import CheckPicture, Verdict
from core.contract.responses.attention import ActionBody, ActionOut, AttentionOut
from core.database.jobs import build_unfinished_job_condition, is_job_rejected_for_findings
from core.database.states import JobState
from core.database.tables import Job, Model, Task, Version
from core.lineage import wording
from core.lineage.lineage import PRODUCTION
from core.lineage.standing import TaskStanding
from core.models.held_actions import (
    HeldVersionFacts,
    build_discard_task_request,
    build_relearn_task_request,
    build_suggested_request,
    build_task_request_path,
    list_held_version_requests,
)
from core.models.trial_choices import list_trial_choice_attention_items
from core.requests.timestamps import format_rfc3339

S = TaskStanding
MOST = 50
"""Most items shown of one model: those that stop its lineage first, then by number of the task."""
MOST_PICTURES = 8
"""Most pictures shown of one held version."""
_KINDS = (S.HELD, S.ROLLED_BACK, S.REJECTED, S.FAILED)


@dataclass(frozen=True)
class TaskAwaitingPersonContext:
    """A task that waits for a person's decision, with the rows that its attention item is made
    from.

    Attributes:
        version: its newest version, if that is held.
        job: its newest job.
        answering: its newest published version, if it is rolled back.
        learned: tasks that the held version lacks and the head has been taught since.
        other_tasks: other tasks of its model that wait for a person, by number.
        pictures: images that the held version gets wrong and production right.
    """

    model: Model
    task: Task
    version: Version | None
    job: Job | None
    answering: int | None
    learned: Collection[int]
    other_tasks: Mapping[int, Task]
    pictures: list[CheckPicture]


def list_attention_items(
    session: Session, models: Sequence[Model]
) -> dict[str, list[AttentionOut]]:
    """Return by model id the items that wait for a person, in a fixed number of queries."""
    by_id = {model.id: model for model in models}
    items = {
        model: [_build_missing_base_item(by_id[model], job)]
        for model, job in pretrained.find_failed_weights_download_jobs(session, models).items()
    }
    for id, choices in list_trial_choice_attention_items(session, list(by_id)).items():
        items.setdefault(id, []).extend(choices)
    tasks = _list_tasks_awaiting_person(session, list(by_id))
    if not tasks:
        return items
    versions, jobs = (
        _find_newest_versions_of_gate_held_tasks(session, tasks),
        _find_newest_jobs_of_tasks(session, tasks),
    )
    answering, learned = (
        _find_newest_versions_of_rolled_back_tasks(session, tasks),
        _find_lacked_tasks_learned_meanwhile(session, versions),
    )
    pictures = _find_images_failing_gate_checks(session, versions)
    # Collected first, since the actions of an item may concern another waiting task.
    waits: dict[str, dict[int, Task]] = {id: {} for id in by_id}
    for task in tasks:
        waits[task.model_id][task.number] = task
    for task in tasks:
        model, key = by_id[task.model_id], (task.model_id, task.number)
        waiting = TaskAwaitingPersonContext(
            model=model,
            task=task,
            version=versions.get(key),
            job=jobs.get(task.id),
            answering=answering.get(key),
            learned=learned.get(key, ()),
            other_tasks=waits[task.model_id],
            pictures=pictures.get(key, []),
        )
        items.setdefault(model.id, []).append(_build_attention_item(waiting))
    return items


def _list_tasks_awaiting_person(session: Session, models: list[str]) -> list[Task]:
    rank = (
        func.row_number()
        .over(partition_by=Task.model_id, order_by=(Task.stops.desc(), Task.number))
        .label("place")
    )
    unfinished = select(Job.id).where(
        Job.model_id == Task.model_id,
        Job.task_id == Task.id,
        build_unfinished_job_condition(Job.state),
    )
    # Ranked by the database, so that a model with many waiting tasks does not load them all.
    ranked = (
        select(Task, rank)
        .where(
            Task.model_id.in_(models),
            Task.standing.in_([str(k) for k in _KINDS]),
            # A task that is being learned again needs no decision now.
            ~unfinished.exists(),
        )
        .subquery()
    )
    task = aliased(Task, ranked)
    return list(
        session.scalars(
            select(task).where(ranked.c.place <= MOST).order_by(ranked.c.model_id, ranked.c.place)
        )
    )


def _find_newest_versions_of_gate_held_tasks(
    session: Session, tasks: Sequence[Task]
) -> dict[tuple[str, int], Version]:
    """Return the newest version of each task that is held, by (model, task)."""
    held_ids = [task.id for task in tasks if task.standing == S.HELD]
    query = (
        select(Version)
        .join(Task, _build_versions_of_task_condition())
        .where(Task.id.in_(held_ids))
        # Manifests are large, and only gates are needed here.
        .options(defer(Version.manifest))
    )
    newest: dict[tuple[str, int], Version] = {}
    # Ascending, so that the newest version of each task remains.
    for version in session.scalars(query.order_by(Version.number)):
        newest[version.model_id, version.task_number or 0] = version
    return newest


def _find_newest_jobs_of_tasks(session: Session, tasks: Sequence[Task]) -> dict[str, Job]:
    """Return the newest job of each task, by task id."""
    # Ascending, so that the newest job of each task remains.
    query = select(Job).where(Job.task_id.in_([task.id for task in tasks])).order_by(Job.place)
    return {job.task_id: job for job in session.scalars(query) if job.task_id is not None}


def _find_newest_versions_of_rolled_back_tasks(
    session: Session, tasks: Sequence[Task]
) -> dict[tuple[str, int], int]:
    """Return the newest published version of each rolled-back task, by (model, task).

    Production can go back to that version.
    """
    back = [task.id for task in tasks if task.standing == S.ROLLED_BACK]
    newest = (
        select(func.max(Version.number))
        .where(_build_versions_of_task_condition(), Version.status == "published")
        .scalar_subquery()
    )
    query = select(Task.model_id, Task.number, newest).where(Task.id.in_(back))
    return {
        (model, task): number
        for model, task, number in session.execute(query)
        if number is not None
    }


def _find_lacked_tasks_learned_meanwhile(
    session: Session, held_versions: Mapping[tuple[str, int], Version]
) -> dict[tuple[str, int], set[int]]:
    """Return by (model, task) the tasks that its held version lacks and that have been learned
    since.
    """
    lost_by_task = {
        key: set(wording.list_tasks_missing_from_held_version(version.gate))
        for key, version in held_versions.items()
    }
    numbers = set().union(*lost_by_task.values()) if lost_by_task else set()
    query = select(Task.model_id, Task.number).where(
        Task.model_id.in_({model for model, _ in lost_by_task}),
        Task.number.in_(numbers),
        Task.standing == S.LEARNED,
    )
    learned = {(model, number) for model, number in session.execute(query)} if numbers else set()
    return {
        key: {number for number in lost_numbers if (key[0], number) in learned}
        for key, lost_numbers in lost_by_task.items()
    }


def _find_images_failing_gate_checks(
    session: Session, held_versions: Mapping[tuple[str, int], Version]
) -> dict[tuple[str, int], list[CheckPicture]]:
    """Return by (model, task) a few images that failed the gate's checks of its held version.

    Only images that are still retained are used.
    """
    chosen = {
        key: _choose_images_of_gate_checks(version.gate) for key, version in held_versions.items()
    }
    named = {(key[0], picture["task"]) for key, pictures in chosen.items() for picture in pictures}
    if not named:
        return {}
    query = select(Task.model_id, Task.number).where(
        Task.model_id.in_({model for model, _ in named}),
        Task.number.in_({number for _, number in named}),
        Task.held_out_deleted_at.is_(None),
        Task.data_deleted_at.is_(None),
    )
    retained_tasks = {(model, number) for model, number in session.execute(query)}
    return {
        key: [picture for picture in pictures if (key[0], picture["task"]) in retained_tasks]
        for key, pictures in chosen.items()
    }


def _choose_images_of_gate_checks(gate: Verdict) -> list[CheckPicture]:
    """Choose images from failed checks in turns: the first of each check, then the second …, each
    image once.
    """
    by_check = [check.get("pictures", []) for check in gate["checks"]]
    in_turn = [
        pictures[index]
        for index in range(MOST_PICTURES)
        for pictures in by_check
        if index < len(pictures)
    ]
    # Reversed twice: a dict keeps the last entry of a key, and the first picture must stay.
    once = {(picture["task"], picture["index"]): picture for picture in reversed(in_turn)}
    return list(reversed(once.values()))[:MOST_PICTURES]


def _build_versions_of_task_condition() -> ColumnElement[bool]:
    return and_(Version.model_id == Task.model_id, Version.task_number == Task.number)


def _build_attention_item(waiting: TaskAwaitingPersonContext) -> AttentionOut:
    model, task, version = waiting.model, waiting.task, waiting.version
    kind = S(str(task.standing))
    detail, actions = {
        S.HELD: _build_held_task_text_and_actions,
        S.ROLLED_BACK: _build_rolled_back_task_text_and_actions,
        S.REJECTED: _build_rejected_task_text_and_actions,
        S.FAILED: _build_failed_task_text_and_actions,
    }[kind](waiting)
    held_version = version if kind is S.HELD else None
    return {
        "kind": str(kind),
        "version": waiting.answering if held_version is None else held_version.number,
        "task": task.number,
        "since": format_rfc3339(task.standing_at),
        "training_data_until": format_rfc3339(
            wording.find_training_image_deletion_time(model, task)
        ),
        "detail": detail,
        "actions": actions,
        "reasons": []
        if held_version is None
        else wording.list_failed_gate_check_sentences(held_version.gate),
        "pictures": waiting.pictures,
    }


def _build_missing_base_item(model: Model, job: Job) -> AttentionOut:
    """Return the attention item for a model whose base weights could not be downloaded."""
    ended = "failed" if job.state == JobState.FAILED else "was cancelled"
    why = "" if job.error is None else f"{_format_job_error(job)} "
    return {
        "kind": "base",
        "version": None,
        "task": None,
        "since": format_rfc3339(job.finished_at),
        "training_data_until": None,
        "detail": f"The job that brings the weights of the model's base {ended}. {why}Batches wait "
        f"for them.",
        "actions": [
            build_suggested_request("Bring the weights again", f"/v1/jobs/{job.id}/retry", {}),
            build_suggested_request(
                "Delete the model", f"/v1/models/{model.id}", None, method="DELETE"
            ),
        ],
        "reasons": [],
        "pictures": [],
    }


def _build_held_task_text_and_actions(
    waiting: TaskAwaitingPersonContext,
) -> tuple[str, list[ActionOut]]:
    model, task, version, job = waiting.model, waiting.task, waiting.version, waiting.job
    assert version is not None and job is not None, "a held task has a version and a job"
    detail = (
        f"{wording.explain_held_version(version.number, version.gate)} "
        f"{wording.explain_stopped_lineage(model, task, version, waiting.learned)}"
    )
    actions = list_held_version_requests(
        HeldVersionFacts(model, task, version, job, waiting.learned, waiting.other_tasks)
    )
    return detail, actions


def _build_rolled_back_task_text_and_actions(
    waiting: TaskAwaitingPersonContext,
) -> tuple[str, list[ActionOut]]:
    model, task, answering = waiting.model, waiting.task, waiting.answering
    until = wording.describe_image_retention(model, task)
    detail = (
        f"Production was rolled back over {wording.describe_task_in_words(task)}: version {model.head}, from "
        f"which the next batch starts, was not taught it, and {wording.describe_gate_rule_for_missing_task(model)}. "
        f"{until[0].upper()}{until[1:]}."
    )
    actions: list[ActionOut] = []
    if wording.can_relearn_task(task):
        actions.append(
            build_suggested_request(
                f"Learn task {task.number} again",
                build_task_request_path(model, task, "relearn"),
                {},
            )
        )
    if answering is not None:
        body: ActionBody = {"version": answering, "reason": "…"}
        title = f"Put version {answering} back in production"
        actions.append(
            build_suggested_request(
                title, f"/v1/models/{model.id}/aliases/{PRODUCTION}", body, method="PUT"
            )
        )
    return detail, [*actions, build_discard_task_request(model, task)]


def _build_rejected_task_text_and_actions(
    waiting: TaskAwaitingPersonContext,
) -> tuple[str, list[ActionOut]]:
    model, task, job = waiting.model, waiting.task, waiting.job
    detail = (
        f"The batch of {wording.describe_task_in_words(task)} was rejected and nothing was learned from it: "
        f"{_format_job_error(job)}"
    )
    upload: ActionOut = {
        "title": "Send a mended batch as a new task",
        "method": "POST",
        "path": f"/v1/models/{model.id}/tasks",
        "body": None,
    }
    settled = (
        " Later batches wait until this task is discarded."
        if task.stops
        else _describe_task_effect_on_later_batches(task)
    )
    if job is not None and is_job_rejected_for_findings(job) and wording.can_relearn_task(task):
        as_it_is = build_suggested_request("Learn it as it is", f"/v1/jobs/{job.id}/retry", {})
        return f"{detail}{_describe_task_effect_on_later_batches(task)}", [
            upload,
            as_it_is,
            build_discard_task_request(model, task),
        ]
    return f"{detail} Send a mended batch as a new task.{settled}", [
        upload,
        build_discard_task_request(model, task),
    ]


def _build_failed_task_text_and_actions(
    waiting: TaskAwaitingPersonContext,
) -> tuple[str, list[ActionOut]]:
    model, task, job = waiting.model, waiting.task, waiting.job
    assert job is not None, "a failed task has a job"
    detail = (
        f"The job of {wording.describe_task_in_words(task)} failed and nothing was learned from it: "
        f"{_format_job_error(job)}{_describe_task_effect_on_later_batches(task)}"
    )
    retry = [build_relearn_task_request(task, job)] if wording.can_relearn_task(task) else []
    return detail, [*retry, build_discard_task_request(model, task)]


def _describe_task_effect_on_later_batches(task: Task) -> str:
    return " Later batches wait for it." if task.stops else " The lineage continues without it."


def _format_job_error(job: Job | None) -> str:
    error = None if job is None else job.error
    text = (error["detail"].strip() if error else "") or "nothing more is known"
    return text if text.endswith((".", "!", "?")) else f"{text}."
