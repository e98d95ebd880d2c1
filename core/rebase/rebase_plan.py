"""Tasks of a model that have arrived in its rebased successor.

A task has arrived if its archive is a task there too. Everything here comes from the database;
`core.rebase.rebase_comparison` compares predictions image by image.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.reports.report import DuplicatesPolicy
from core.contract.responses.versions.rebase import Arrival, RebaseSide
from core.database.label_names import order_task_labels_by_dataset_number
from core.database.tables import Alias, Model, Task, Version, VersionTaskResult
from core.errors import NotFound
from core.ingest.stored_predictions import TaskPredictionsPlaceInBlob
from core.lineage import wording
from core.lineage.coverage import list_taught_tasks
from core.lineage.lineage import PRODUCTION, find_version_by_number, read_tasks_by_numbers
from core.lineage.standing import (
    TaskStanding,
    read_task_standings,
    read_unfinished_job_states_by_task,
)
from core.requests.actor import Actor, find_model

_UNDER_WAY = (TaskStanding.QUEUED, TaskStanding.RUNNING)


@dataclass(frozen=True)
class MeasuredTaskResults:
    """Measured results of a production version on one task's held-out images.

    Attributes:
        correct, total: numbers of images.
        per_class: correct predictions and images by label.
        predictions, held_out, traces: digests of blobs; None if not retained.
        place: place of the predictions in their blob.
        rows: labels of the rows that predictions name.
        labels: labels of the dataset's numbers.
    """

    correct: int
    total: int
    per_class: Mapping[str, list[int]]
    predictions: str | None
    place: TaskPredictionsPlaceInBlob
    held_out: str | None
    traces: str | None
    rows: list[str]
    labels: list[str]


@dataclass(frozen=True)
class RebaseTaskProgress:
    """A task of the old model's production, and its state in the new model of a rebase.

    Attributes:
        images: number of its images in both parts.
        duplicates: policy for equal images.
        new_task: its number in the new model.
        arrived: True if production of the new model was taught it.
        old, new: measurements of both models on its held-out images; None if not measured.
        missing: step that is left before production can move; "" if none.
        detail: reason why it is not compared, or not image by image; "" if it is.
        by_image: True if the predictions of both can be compared image by image.
    """

    number: int
    name: str | None
    classes: list[str]
    images: int
    sha256: str
    duplicates: DuplicatesPolicy
    arrival: Arrival
    new_task: int | None
    standing: str | None
    arrived: bool
    old: MeasuredTaskResults | None
    new: MeasuredTaskResults | None
    missing: str = ""
    detail: str = ""
    by_image: bool = False


@dataclass(frozen=True)
class RebaseProgress:
    """The old and the new model of a rebase as they are now, and the state of each task.

    Attributes:
        waiting: sentences about other things that are missing.
        notes: sentences about effects on clients once production has moved, and about figures that
            look better than they are.
    """

    old: RebaseSide
    new: RebaseSide
    tasks: list[RebaseTaskProgress]
    finished_at: float | None
    waiting: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """True if no task and nothing else is missing to finish the rebase."""
        return not self.waiting and not any(task.missing for task in self.tasks)


@dataclass(frozen=True)
class _RebaseModels:
    """The old and the new model of a rebase.

    Attributes:
        standings: standing of each task in the new model.
        taught: tasks that production of the new model was taught.
    """

    old: Model
    new: Model
    standings: Mapping[int, TaskStanding]
    taught: Collection[int]


def find_rebase_models(session: Session, actor: Actor, model: str) -> tuple[Model, Model]:
    """Find the old and new model of a rebase, given the name of either.

    Raises:
        NotFound: the caller sees no such model, or no rebase of it.
    """
    row = find_model(session, actor, model)
    pair = find_rebase_of_model(session, row)
    if pair is None:
        raise NotFound(
            f"Model {row.name!r} is not on its way to another base. "
            f"Begin that with POST /v1/models/{row.name}/rebase."
        )
    return pair


def find_rebase_of_model(session: Session, row: Model) -> tuple[Model, Model] | None:
    """Find both models of the rebase that a model is part of, the old one first, or None.

    Of several rebases the open one is returned, else the newest.
    """
    successors = list(
        session.scalars(select(Model).where(Model.rebased_from == row.id).order_by(Model.id.desc()))
    )
    under_way = [one for one in successors if one.deleted_at is None and one.rebased_at is None]
    finished = [one for one in successors if one.rebased_at is not None]
    # A model that has taken over may itself be on its way to another base.
    if row.rebased_from is not None and (row.rebased_at is None or not under_way):
        return session.get_one(Model, row.rebased_from), row
    after = [*under_way, *finished]
    return (row, after[0]) if after else None


def find_new_model_of_open_rebase(session: Session, old: Model) -> Model | None:
    """Find the new model of a model's open rebase, or None."""
    query = select(Model).where(
        Model.rebased_from == old.id, Model.rebased_at.is_(None), Model.deleted_at.is_(None)
    )
    return session.scalars(query.order_by(Model.id.desc()).limit(1)).one_or_none()


def find_production_version(session: Session, model: Model) -> Version | None:
    """Find the version in production, or None while the model's base weights are fetched."""
    alias = session.get(Alias, (model.id, PRODUCTION))
    return None if alias is None else find_version_by_number(session, model, alias.version)


def compute_rebase_progress(session: Session, old: Model, new: Model) -> RebaseProgress:
    """Make a rebase's plan: compute which tasks of the old model have arrived in the new one."""
    old_version, new_version = (
        find_production_version(session, old),
        find_production_version(session, new),
    )
    sides = (
        _build_rebase_model_summary(old, old_version),
        _build_rebase_model_summary(new, new_version),
    )
    if old.deleted_at is not None:
        text = f"Model {old.name!r} was deleted: there is nothing to compare with any more."
        return RebaseProgress(*sides, [], new.rebased_at, [text])
    tasks = read_tasks_by_numbers(session, old, _list_taught_tasks(old_version))
    twins = _find_tasks_by_archive(
        session, new, {task.sha256 for task in tasks}, _list_taught_tasks(new_version)
    )
    standings = read_task_standings(session, new.id, list(twins.values()))
    cells = (
        _find_measured_results_by_task(session, old, old_version),
        _find_measured_results_by_task(session, new, new_version),
    )
    rebase = _RebaseModels(old, new, standings, set(_list_taught_tasks(new_version)))
    planned: list[RebaseTaskProgress] = []
    first: dict[str, int] = {}
    for task in tasks:
        twin = twins.get(task.sha256)
        measured = (
            _build_task_measurements(old, old_version, task, cells[0]),
            None if twin is None else _build_task_measurements(new, new_version, twin, cells[1]),
        )
        one = _build_rebase_task_progress(rebase, task, twin, measured, first.get(task.sha256))
        # An archive that was sent twice has the same images, which count once.
        first.setdefault(task.sha256, task.number)
        planned.append(one)
    waiting = _describe_pending_rebase_work(session, old, new, [task.number for task in tasks])
    return RebaseProgress(
        *sides,
        planned,
        new.rebased_at,
        waiting,
        _list_rebase_effect_warnings(session, old, new, planned),
    )


def _build_rebase_model_summary(model: Model, version: Version | None) -> RebaseSide:
    return {
        "id": model.id,
        "name": model.name,
        "deleted": model.deleted_at is not None,
        "base": model.base,
        "image": model.image,
        "version": None if version is None else version.number,
    }


def _list_taught_tasks(version: Version | None) -> list[int]:
    return [] if version is None else list_taught_tasks(version.manifest)


def _find_tasks_by_archive(
    session: Session, new: Model, archives: Collection[str], taught: Collection[int]
) -> dict[str, Task]:
    """Find the new model's task for each archive digest: one in production, else the newest."""
    query = (
        select(Task).where(Task.model_id == new.id, Task.sha256.in_(archives)).order_by(Task.number)
    )
    tasks = list(session.scalars(query))
    by_archive = {task.sha256: task for task in tasks}
    return by_archive | {task.sha256: task for task in tasks if task.number in taught}


def _find_measured_results_by_task(
    session: Session, model: Model, version: Version | None
) -> dict[int, VersionTaskResult]:
    """Find the measured results of a version by task."""
    if version is None:
        return {}
    query = select(VersionTaskResult).where(
        VersionTaskResult.model_id == model.id, VersionTaskResult.version == version.number
    )
    return {cell.task: cell for cell in session.scalars(query)}


def _build_task_measurements(
    model: Model, version: Version | None, task: Task, cells: Mapping[int, VersionTaskResult]
) -> MeasuredTaskResults | None:
    """Build a version's measured results on a task, or None if it was not measured."""
    cell = cells.get(task.number)
    if version is None or cell is None:
        return None
    is_kept = task.held_out_deleted_at is None and task.data_deleted_at is None
    if model.scenario == "task":
        head = version.manifest.find_head_entry(task.number)
        rows = list(head.classes) if head is not None else []
    else:
        rows = list(version.manifest.classes or model.classes or [])
    return MeasuredTaskResults(
        cell.correct,
        cell.total,
        cell.per_class,
        cell.answers,
        TaskPredictionsPlaceInBlob(version.number, task.number, task.answers_key),
        task.held_out_sha256 if is_kept else None,
        task.traces_sha256 if is_kept else None,
        rows,
        order_task_labels_by_dataset_number(model, task.classes),
    )


def _build_rebase_task_progress(
    rebase: _RebaseModels,
    task: Task,
    twin: Task | None,
    measured: tuple[MeasuredTaskResults | None, MeasuredTaskResults | None],
    same_as: int | None,
) -> RebaseTaskProgress:
    """Describe an old model's task with its state in the new model of a rebase.

    Args:
        twin: task of the new model with the same archive.
        same_as: number of an earlier task with the same archive.
    """
    old, new, standings = rebase.old, rebase.new, rebase.standings
    arrived, detail, by_image = twin is not None and twin.number in rebase.taught, "", False
    if twin is None:
        missing = _describe_archive_resending(old, new, task)
    elif not arrived:
        missing = _describe_next_task_step(new, twin, standings[twin.number])
    else:
        detail, by_image = _determine_image_comparability_of_task(task, measured)
        missing = "" if by_image or _are_models_measured_on_same_images(task, measured) else detail
    if by_image and same_as is not None:
        detail, by_image = f"Its archive is that of task {same_as}: it is counted there.", False
    arrival: Arrival = "send_again"
    # retained tasks are added in the same transaction as the model, so their times are equal
    if twin is not None:
        arrival = "relearned" if twin.created_at == new.created_at else "sent"
    return RebaseTaskProgress(
        task.number,
        task.name,
        sorted(task.classes),
        sum(task.classes.values()),
        task.sha256,
        # Reports from before there was a choice do not name one.
        task.report.get("duplicates_policy", "keep"),
        arrival,
        None if twin is None else twin.number,
        None if twin is None else str(standings[twin.number]),
        arrived,
        *measured,
        missing=missing,
        detail=detail,
        by_image=by_image,
    )


def _describe_archive_resending(old: Model, new: Model, task: Task) -> str:
    """Explain that the task's archive must be sent again to the new model."""
    name = wording.describe_task_in_words(task)
    deletion_note = (
        f" Its images were deleted on {wording.format_date(task.data_deleted_at)}, and nothing of "
        f"them is kept."
        if task.data_deleted_at is not None
        else ""
    )
    return f"Send the archive of {name} to {new.name} again.{deletion_note}"


def _describe_next_task_step(new: Model, twin: Task, standing: TaskStanding) -> str:
    """Describe what is left to do before a task is in the new model's production."""
    name = wording.describe_task_in_words(twin)
    if standing in _UNDER_WAY:
        return f"Wait until {new.name} has learned {name}."
    if standing is TaskStanding.LEARNED:
        return (
            f"{new.name} has learned {name}, and the version in production there does not know it "
            "yet: a version that knows one class waits for the next batch, and one that was put "
            "there by a person stays."
        )
    standing_text = str(standing).replace("_", " ")
    return f"{name[0].upper()}{name[1:]} of {new.name} is {standing_text}. {wording.SETTLED_BY}"


def _determine_image_comparability_of_task(
    task: Task, measured: tuple[MeasuredTaskResults | None, MeasuredTaskResults | None]
) -> tuple[str, bool]:
    """Check if a task can be compared image by image between two models; also return why not."""
    old, new = measured
    if not _has_held_out_images(task, old):
        return "It has no held-out images: nothing was measured.", False
    if old is None or new is None:
        side = "old" if old is None else "new"
        return f"The version in production of the {side} model was not measured on it.", False
    if not _have_both_models_equal_image_counts(old, new):
        return (
            f"Other images are held out in the new model ({new.total} beside {old.total}): its "
            "batch was sent with another treatment of duplicates, or other images of it could be "
            "decoded.",
            False,
        )
    if old.predictions is None or new.predictions is None:
        side = "old" if old.predictions is None else "new"
        return (
            f"The {side} model keeps no answers image by image, so that only counts are compared.",
            False,
        )
    return "", True


def _has_held_out_images(task: Task, old: MeasuredTaskResults | None) -> bool:
    return bool(task.n_held_out) and (old is None or old.total > 0)


def _are_models_measured_on_same_images(
    task: Task, measured: tuple[MeasuredTaskResults | None, MeasuredTaskResults | None]
) -> bool:
    """Return True if both models were measured on the same held-out images of a task, or it has
    none.
    """
    old, new = measured
    if not _has_held_out_images(task, old):
        return True
    return old is not None and new is not None and _have_both_models_equal_image_counts(old, new)


def _have_both_models_equal_image_counts(
    old: MeasuredTaskResults, new: MeasuredTaskResults
) -> bool:
    """Return True if both models counted as many held-out images of each class.

    Without counts by class, equal totals suffice.
    """
    if old.total != new.total:
        return False
    of_old, of_new = (
        {label: cell[1] for label, cell in side.per_class.items() if cell[1]} for side in (old, new)
    )
    return not of_old or not of_new or of_old == of_new


def _describe_pending_rebase_work(
    session: Session, old: Model, new: Model, numbers: Collection[int]
) -> list[str]:
    """Describe what a rebase still waits for, apart from production's tasks."""
    sentences = []
    if new.base_job is not None:
        sentences.append(
            f"Job {new.base_job} brings the weights of the base of {new.name}: wait for it."
        )
    unfinished = sorted(set(read_unfinished_job_states_by_task(session, old.id)) - set(numbers))
    if unfinished:
        listed = wording.join_words_with_conjunction([str(number) for number in unfinished])
        several = "s" * (len(unfinished) > 1)
        sentences.append(
            f"{old.name} is just learning its task{several} {listed}: wait for it, and send the "
            f"same to {new.name}."
        )
    return sentences


def _list_rebase_effect_warnings(
    session: Session, old: Model, new: Model, planned: Collection[RebaseTaskProgress]
) -> list[str]:
    """List warnings about a rebase's effects on clients, and about figures that look too good."""
    sentences = []
    if (
        old.scenario == "class"
        and any(one.by_image for one in planned)
        and any(one.missing for one in planned)
    ):
        sentences.append(
            f"{new.name} does not know all classes of {old.name} yet: with fewer to choose from, "
            "its answers look better than they will be."
        )
    moved = [task for task in planned if task.new_task not in (None, task.number)]
    if old.scenario == "task" and moved:
        pairs = wording.join_words_with_conjunction(
            [f"{task.number} is {task.new_task}" for task in moved], 10
        )
        sentences.append(
            f"Tasks have other numbers in {new.name}, by which clients ask for their heads: "
            f"{pairs}."
        )
    aliases = (select(Alias.name).where(Alias.model_id == model.id) for model in (old, new))
    lacking = sorted(set.difference(*(set(session.scalars(query)) for query in aliases)))
    if lacking and new.base_job is None:
        sentences.append(
            f"{new.name} has no alias {wording.join_words_with_conjunction(lacking, 10, 'or')}, as {old.name} has: "
            "put it there before production moves, if clients ask by it."
        )
    archives = select(Task.sha256).where(Task.model_id == old.id)
    of_others = select(Task.number).where(Task.model_id == new.id, Task.sha256.not_in(archives))
    extra = [str(number) for number in session.scalars(of_others.order_by(Task.number))]
    if extra and any(task.arrival == "send_again" for task in planned):
        several = "s" * (len(extra) > 1)
        sentences.append(
            f"Task{several} {wording.join_words_with_conjunction(extra)} of {new.name} came from other archives than "
            f"{old.name} has learned: "
            "a batch that was packed again has other bytes, and is not compared. Send the same "
            "files as then."
        )
    return sentences
