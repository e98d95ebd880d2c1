"""Rows that the job of an edit needs, read and checked in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.figures import VersionFeatureKnnProbeResult
from core.contract.recipe import Recipe
from core.database.kinds import JobKind
from core.database.measurements import PROBE, read_version_measurements
from core.database.session import Database
from core.database.tables import Edit, Job, Model, Task, Version, VersionPart, VersionTaskResult
from core.edits.acceptance import (
    find_feature_version_parts_by_name,
    find_version_to_relearn_from,
    read_tasks_with_taught_first,
)
from core.edits.operation_checks import EditChanges, check_and_combine_operations
from core.edits.operations import Operation
from core.edits.rewrite import get_names_of_task_feature_parts
from core.errors import Invalid, PerennialError
from core.execution.parent_parts import list_parts_needed_to_continue, list_parts_of_version_itself
from core.execution.prepare import fill_in_missing_recipe_fields, list_tasks_with_deleted_data
from core.jobs.fence import JobClaim, lock_claimed_job
from core.lineage import lineage
from core.lineage.class_numbers import AncestorClassNumberMaps, read_ancestor_class_number_maps
from core.lineage.coverage import list_taught_tasks
from core.retention import damage
from core.settings import Settings
from core.storage import Blobs


@dataclass(frozen=True)
class RowsForEditJob:
    """Database rows and figures that an edit job needs.

    Attributes:
        changes: what the edit changes.
        head: the lineage head, which the edit replaces.
        start: version that the first process continues.
        base: version 0.
        parts: parts of `start` and its ancestors that jobs read.
        numbers: numbers of classes in the parts of `start` and its ancestors.
        base_parts: parts of `base`.
        features: parts with features of training images, by name; empty for `relearn`.
        held_out_counts: held-out images of each class by task, as the head was measured on them.
        tasks: tasks of the head by number.
        taught: their numbers, in order.
        recipes: complete recipe of each task that is learned again, in order; empty for `rename`
            and `patch`.
        erased: tasks whose data was deleted.
        probe: k-NN probe of `start`, whose features the edited version has; None for `relearn`.
    """

    model: Model
    edit: Edit
    changes: EditChanges
    head: Version
    start: Version
    base: Version
    parts: list[VersionPart]
    numbers: AncestorClassNumberMaps
    base_parts: list[VersionPart]
    features: dict[str, VersionPart]
    held_out_counts: dict[int, dict[str, int]]
    tasks: dict[int, Task]
    taught: list[int]
    recipes: dict[int, Recipe]
    erased: list[int]
    probe: VersionFeatureKnnProbeResult | None

    @property
    def relearns_from_features(self) -> bool:
        """True if the edit learns its tasks again from stored features instead of images."""
        return self.edit.way == "recompute"


def read_and_check_edit_job_inputs(
    db: Database, settings: Settings, claim: JobClaim
) -> RowsForEditJob:
    """Read the database rows that an edit job needs, and check that the edit is still possible.

    Raises:
        LeaseLost: the claim is not the job's any more.
        Invalid: data that the edit needs was deleted since it was accepted, or the lineage has moved.
        StoredObjectDamaged: a part that it needs is known to be damaged.
    """
    with db.write() as session:
        job = lock_claimed_job(session, claim)
        model = session.get_one(Model, job.model_id)
        edit = session.scalars(select(Edit).where(Edit.job_id == job.id)).one()
        head = lineage.find_version_by_number(session, model, claim.parent)
        base = lineage.find_version_by_number(session, model, 0)
        assert head is not None and base is not None, "a job starts from a version of its model"
        taught = list_taught_tasks(head.manifest)
        changes = _recompute_and_check_edit_changes(session, model, edit, head)
        tasks = {
            task.number: task
            for task in lineage.read_tasks_by_numbers(session, model, taught, with_reports=False)
        }
        if edit.way == "recompute":
            relearned_tasks, start = edit.tasks, head
            features = {
                name: each.part
                for name, each in find_feature_version_parts_by_name(
                    session, model, head, taught
                ).items()
            }
            for number in relearned_tasks:
                if get_names_of_task_feature_parts(number)[0] not in features:
                    raise _make_edit_data_gone_error(f"The features of task {number} were deleted")
        elif edit.way in ("rename", "patch"):
            relearned_tasks, start = [], head
            feature_parts = find_feature_version_parts_by_name(session, model, head, taught)
            features = {name: each.part for name, each in feature_parts.items()}
        else:
            start, features = find_version_to_relearn_from(session, model, head, edit.tasks[0]), {}
            relearned_tasks = taught[len(list_taught_tasks(start.manifest)) :]
            for number in relearned_tasks:
                task = tasks[number]
                if task.train_deleted_at is not None or task.data_deleted_at is not None:
                    raise _make_edit_data_gone_error(
                        f"The training images of task {number} were deleted"
                    )
        parts, base_parts = (
            list_parts_needed_to_continue(session, start),
            list_parts_of_version_itself(session, base),
        )
        # Learning from damaged parts would carry the damage into every later version.
        keys = [
            Blobs.make_blob_key(part.sha256)
            for part in (*parts, *base_parts)
            if not part.deleted_at
        ]
        damage.require_undamaged_model_objects(session, model.id, keys)
        stored = _read_recipes_of_relearned_tasks(session, model, edit, head, relearned_tasks)
        return RowsForEditJob(
            model=model,
            edit=edit,
            changes=changes,
            head=head,
            start=start,
            base=base,
            parts=parts,
            numbers=read_ancestor_class_number_maps(session, start),
            base_parts=base_parts,
            features=features,
            held_out_counts=_count_held_out_images_by_class(session, head),
            tasks=tasks,
            taught=taught,
            recipes={
                number: fill_in_missing_recipe_fields(settings, model, recipe.to_json())
                for number, recipe in stored.items()
            },
            erased=list_tasks_with_deleted_data(session, model.id),
            probe=_read_knn_probe(session, start) if edit.way == "recompute" else None,
        )


def _read_knn_probe(session: Session, version: Version) -> VersionFeatureKnnProbeResult | None:
    """Read the k-NN probe of a version; None if it was not measured."""
    measurements = read_version_measurements(session, version.model_id, [version.number], {PROBE})
    document = measurements[version.number].get(PROBE)
    return None if document is None else VersionFeatureKnnProbeResult.from_json(document)


def _recompute_and_check_edit_changes(
    session: Session, model: Model, edit: Edit, head: Version
) -> EditChanges:
    """Check an edit's operations again, against the present head of the lineage."""
    operations = [Operation.model_validate(one) for one in edit.operations]
    tasks = read_tasks_with_taught_first(session, model, head.manifest)
    # The edit's own job makes its last task look as if it were queued.
    tasks = {
        number: task if number not in head.manifest.tasks else task.copy_as_learned_task()
        for number, task in tasks.items()
    }
    head_classes = list(model.classes or head.manifest.classes or [])
    try:
        changes = check_and_combine_operations(operations, model.scenario, tasks, head_classes)
    except PerennialError as error:
        raise Invalid(f"The edit does not fit the model any more: {error.detail}") from error
    taught = {number: tasks[number] for number in head.manifest.tasks}
    edited = changes.list_changed_tasks(taught)
    if edited != edit.tasks:
        raise Invalid(
            f"The edit was accepted for tasks {edit.tasks}, and would change {edited} now. Send it "
            f"again."
        )
    return changes.drop_tasks_left_without_classes(taught) if edit.way == "patch" else changes


def _count_held_out_images_by_class(session: Session, head: Version) -> dict[int, dict[str, int]]:
    query = select(VersionTaskResult.task, VersionTaskResult.per_class).where(
        VersionTaskResult.model_id == head.model_id, VersionTaskResult.version == head.number
    )
    return {
        task: {name: total for name, (_, total) in per_class.items()}
        for task, per_class in session.execute(query)
    }


def _read_recipes_of_relearned_tasks(
    session: Session, model: Model, edit: Edit, head: Version, relearned_tasks: Sequence[int]
) -> dict[int, Recipe]:
    """Read the recorded recipe of each task that an edit learns again, in order.

    Sums are solved by the recipe of the newest version, as after its own task.
    """
    assert head.manifest.recipe is not None, "a version that was taught a task has a recipe"
    if edit.way == "recompute":
        return dict.fromkeys(relearned_tasks, head.manifest.recipe)
    query = (
        select(Version.task_number, Version.manifest)
        .join(Job, Job.id == Version.job_id)
        .where(
            Version.model_id == model.id,
            Version.task_number.in_(relearned_tasks),
            Job.kind == str(JobKind.LEARN),
            Version.status == "published",
        )
        .order_by(Version.number)
    )
    # A task that was learned several times has the recipe of the last time.
    recipes = {number: manifest.recipe for number, manifest in session.execute(query)}
    return {number: recipes.get(number) or head.manifest.recipe for number in relearned_tasks}


def _make_edit_data_gone_error(text: str) -> Invalid:
    return Invalid(f"{text} since the edit was accepted, so it cannot be made any more.")
