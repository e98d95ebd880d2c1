"""Preparation of a job process: a folder with its specification and local files.

`spec.json` names everything that the process reads by a local path, since it knows neither database
nor store. The specification is a pure function of the claim's rows and of the code, so a second
attempt of a job gets the same one. The job's recipe was completed when its batch was accepted. It
is resolved again, because an update since then may have added fields or removed its method.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.architecture import ArchitectureWithHyperParameters, ImageSettings
from core.contract.jobs.job_spec import (
    EarlierTask,
    FileByteRange,
    LearnJobSpec,
    LocalVersionPartFile,
    SelectionDataset,
    StartingVersion,
    TaskToLearn,
)
from core.contract.manifest import PER_TASK, TOTALS, Manifest
from core.contract.recipe import Recipe
from core.contract.reports.data_report import FindingKind
from core.contract.reports.report import BatchReport
from core.contract.responses.recipe import RecipeOut
from core.database.measurements import PROBE, read_version_measurements
from core.database.session import Database
from core.database.tables import Model, Task, Version, VersionPart, VersionTaskResult
from core.errors import Invalid, StoredObjectDamaged
from core.execution import snapshots
from core.execution.feature_totals import digest_version_parts_in_feature_totals as make_totals_key
from core.execution.feature_totals import is_version_part_in_feature_totals
from core.execution.held_out_features import BACKBONE, digest_held_out_feature_inputs
from core.execution.parent_parts import list_parts_needed_to_continue, list_parts_of_version_itself
from core.ingest.findings.traces import read_image_fingerprints
from core.ingest.stored_predictions import TaskPredictionsPlaceInBlob, decrypt_predictions
from core.jobs.fence import JobClaim, lock_claimed_job
from core.lineage import lineage
from core.lineage.class_numbers import (
    AS_STORED,
    AncestorClassNumberMaps,
    read_ancestor_class_number_maps,
)
from core.lineage.confident_predictions import choose_threshold_for_promised_precision
from core.lineage.coverage import list_taught_tasks
from core.recipe.catalogue import load_recipe_catalogue
from core.recipe.resolve import resolve_recipe
from core.retention import damage, retention
from core.retention.damage import DatabaseDamageMarks
from core.settings import Settings
from core.storage import Blobs, ObjectStorage


@dataclass(frozen=True)
class StoredPredictionsLocation:
    """Location of a version's stored predictions on a task: a blob, and the range in it."""

    sha256: str
    place: TaskPredictionsPlaceInBlob


def fetch_job_inputs_and_write_spec(
    db: Database, store: ObjectStorage, claim: JobClaim, settings: Settings, folder: Path
) -> Path:
    """Fetch a job's input files and write its spec `spec.json`; return the path.

    Args:
        folder: the job's own local folder; `out/` under it is for the result.

    Raises:
        Invalid: the job's training data was deleted, or this code cannot use its recipe. The caller
            fails the job (kind `data`).
        StoredObjectDamaged: a blob is missing or damaged.
        LeaseLost: the claim is not the job's any more.
    """
    blobs = Blobs(store, settings.make_folder("cache"), marks=DatabaseDamageMarks(db))
    with db.write() as session:
        # A worker that has lost its lease ends here, before it fetches anything.
        job = lock_claimed_job(session, claim)
        model = session.get_one(Model, job.model_id)
        task = session.get_one(Task, job.task_id)
        if task.train_sha256 is None or task.train_deleted_at or task.data_deleted_at:
            raise Invalid(
                f"The training part of task {task.number} was deleted; send the batch again."
            )
        base, parent = (
            lineage.find_version_by_number(session, model, number) for number in (0, claim.parent)
        )
        assert base is not None and parent is not None, "a job starts from a version of its model"
        tasks = lineage.read_tasks_by_numbers(
            session, model, list_taught_tasks(parent.manifest), with_reports=False
        )
        parts = {
            base.id: list_parts_of_version_itself(session, base),
            parent.id: list_parts_needed_to_continue(session, parent),
        }
        numbers = read_ancestor_class_number_maps(session, parent)
        job_recipe, is_trial = job.recipe, job.choose is not None
        totals = _find_digest_of_feature_totals(
            model, parent, make_totals_key(parts[parent.id], numbers), job_recipe
        )
        erased_tasks = list_tasks_with_deleted_data(session, model.id)
        probe = read_version_measurements(session, model.id, [parent.number], {PROBE})
        report = task.report
        promise = choose_threshold_for_promised_precision(session, model, parent.number)
        stored_answers, features = (
            find_stored_predictions_by_task(session, parent),
            find_reusable_held_out_features(tasks, parts[parent.id]),
        )
        # Derived data can be computed again, so a damaged object is left out instead of stopping
        # the job.
        derived = {
            *features.values(),
            *(stored.sha256 for stored in stored_answers.values()),
            *([totals] if totals else []),
        }
        marked = damage.find_digests_marked_damaged(session, derived)
        totals = None if totals in marked else totals
        stored_answers = {
            number: stored
            for number, stored in stored_answers.items()
            if stored.sha256 not in marked
        }
        features = {number: digest for number, digest in features.items() if digest not in marked}
        digests = [
            part.sha256
            for stored in parts.values()
            for part in stored
            if part.deleted_at is None
            and (totals is None or not is_version_part_in_feature_totals(part))
        ]
        # Learning from damaged parts would carry the damage into every later version.
        damage.require_undamaged_model_objects(
            session, model.id, map(Blobs.make_blob_key, [task.train_sha256, *digests])
        )
    recipe = fill_in_missing_recipe_fields(settings, model, job_recipe)
    folder.mkdir(parents=True, exist_ok=True)
    # After the transaction, which must not stay open during downloads.
    snapshot = snapshots.fetch_snapshot(db, store, claim, folder / "snapshot")

    with damage.reword_damage_errors_of_model(db, model.id):
        # The parent's predictions on all tasks are one blob, or a few.
        answers_files = {
            sha256: fetch_blob_if_undamaged(blobs, sha256)
            for sha256 in {stored.sha256 for stored in stored_answers.values()}
        }
        prediction_ranges = decrypt_stored_predictions_to_one_file(
            stored_answers, answers_files, folder
        )
        spec = LearnJobSpec(
            architecture=ArchitectureWithHyperParameters.from_json(model.architecture),
            image=ImageSettings.from_json(model.image),
            scenario=model.scenario,
            problem=model.problem,
            recipe=recipe,
            normalise=base.manifest.normalise,
            classes=model.classes if model.scenario == "data" else None,
            task=_fetch_data_of_task_to_learn(blobs, task, task.train_sha256, folder),
            history=[
                fetch_files_of_earlier_task(
                    blobs,
                    earlier,
                    prediction_ranges.get(earlier.number),
                    features.get(earlier.number),
                )
                for earlier in tasks
                if earlier.number != task.number
            ],
            erased_tasks=erased_tasks,
            held_out_stays=model.held_out != retention.COUNTS,
            # Figures are stored beside the manifest; this one saves the count of earlier tasks.
            parent=_add_measurements_to_manifest(
                _fetch_parent_parts(blobs, parent, parts[parent.id], numbers, totals),
                probe[parent.number],
            ),
            base=fetch_version_parts(blobs, base, parts[base.id]),
            snapshot=snapshot,
            data=report.get("data"),
            settled=_list_accepted_data_findings(report),
            sure_from=None if promise is None else promise["threshold"],
            **(_fetch_trial_selection_images(blobs, [*tasks, task]) if is_trial else {}),
            out=folder / "out",
            threads=settings.threads,
            device=settings.device if claim.device == "auto" else claim.device,
            ranks=settings.ranks,
            gpu_memory_share=settings.gpu_memory_share,
        )
    path = folder / "spec.json"
    path.write_text(json.dumps(spec.to_json(), ensure_ascii=False))
    return path


def fill_in_missing_recipe_fields(
    settings: Settings, model: Model, recipe: Mapping[str, Any]
) -> Recipe:
    """Fill in fields that a recipe stored by older code lacks with present defaults.

    Raises:
        InvalidRecipe: this code cannot use it.
    """
    resolved = resolve_recipe(
        load_recipe_catalogue(settings),
        model.scenario,
        recipe,
        architecture=model.architecture,
        stored=True,
        problem=model.problem,
    )
    return Recipe.from_json(resolved.recipe)


def _list_accepted_data_findings(report: BatchReport) -> list[FindingKind]:
    """Return the data findings that a user has accepted, so that they no longer hold the batch."""
    settled_kinds: set[FindingKind] = (
        {"conflicts"} if report.get("conflicts_policy") == "keep" else set()
    )
    return sorted(settled_kinds | set(report.get("settled", [])))


def list_tasks_with_deleted_data(session: Session, model_id: str) -> list[int]:
    """Return the numbers of a model's tasks whose data was deleted."""
    query = select(Task.number).where(Task.model_id == model_id, Task.data_deleted_at.is_not(None))
    return sorted(session.execute(query).scalars())


def _find_digest_of_feature_totals(
    model: Model, parent: Version, key: str, recipe: RecipeOut
) -> str | None:
    """Return the digest of the parent's stored totals (feature sums over all tasks); None without
    any.

    Args:
        key: digest of these sums and features.
        recipe: the job's recipe. A method other than the parent's uses none of them.
    """
    made_by, method = parent.manifest.method, recipe.get("method")
    name = method.get("name") if isinstance(method, dict) else method
    # After a rollback the model's totals belong to another version than the parent.
    if made_by is None or made_by.name != name or model.totals_key != key:
        return None
    return model.totals_sha256


def _fetch_parent_parts(
    blobs: Blobs,
    parent: Version,
    parts: list[VersionPart],
    numbers: AncestorClassNumberMaps,
    totals: str | None,
) -> StartingVersion:
    """Fetch the parts of the parent version; feature sums of tasks are replaced by their totals."""
    path = None if totals is None else fetch_blob_if_undamaged(blobs, totals)
    if path is None:
        return fetch_version_parts(blobs, parent, parts, numbers)
    local = fetch_version_parts(
        blobs, parent, [part for part in parts if not is_version_part_in_feature_totals(part)]
    )
    totals_part = LocalVersionPartFile(name=TOTALS, type=TOTALS, path=path)
    return local.model_copy(update={"parts": [*local.parts, totals_part]})


def _add_measurements_to_manifest(
    version: StartingVersion, figures: Mapping[str, JsonValue]
) -> StartingVersion:
    """Add a version's measured figures, which are stored apart, to its manifest."""
    manifest = Manifest.from_json({**version.manifest.to_json(), **figures})
    return version.model_copy(update={"manifest": manifest})


def fetch_version_parts(
    blobs: Blobs,
    version: Version,
    parts: list[VersionPart],
    numbers: AncestorClassNumberMaps = AS_STORED,
) -> StartingVersion:
    """Fetch the parts of a version as local files.

    Args:
        numbers: numbers of classes in the parts of its ancestors.
    """
    return StartingVersion(
        version=version.number,
        manifest=version.manifest,
        parts=[
            LocalVersionPartFile(
                name=part.name,
                type=part.type,
                path=blobs.fetch_verified_file(part.sha256),
                **_get_class_numbers_field_of_part(part, numbers),
            )
            for part in parts
            if part.deleted_at is None
        ],
        class_numbers=numbers.maps,
        deleted=sorted({part.type for part in parts if part.deleted_at is not None}),
    )


def _get_class_numbers_field_of_part(
    part: VersionPart, numbers: AncestorClassNumberMaps
) -> dict[str, Any]:
    """Return the spec field with the class number map that a part needs, if it needs one."""
    map_index = numbers.by_version.get(part.version_id) if part.type in PER_TASK else None
    return {} if map_index is None else {"numbers": map_index}


def _fetch_data_of_task_to_learn(
    blobs: Blobs, task: Task, train_sha256: str, folder: Path
) -> TaskToLearn:
    """Fetch the data files of the task that a job learns."""
    traces = _fetch_image_hash_file(blobs, task)
    return TaskToLearn(
        number=task.number,
        classes=sorted(task.classes),
        train=blobs.fetch_verified_file(train_sha256),
        paths=_write_training_paths(traces, folder),
        held_out=_fetch_held_out_dataset(blobs, task),
        traces=traces,
    )


def _fetch_trial_selection_images(blobs: Blobs, tasks: list[Task]) -> dict[str, Any]:
    """Fetch the images on which trials are compared; return them as fields of the trial's spec."""
    parts = {
        task.number: SelectionDataset(
            task=task.number,
            classes=sorted(task.classes),
            path=blobs.fetch_verified_file(task.selection_sha256),
        )
        for task in tasks
        if task.selection_sha256 is not None and task.held_out_deleted_at is None
    }
    return {"trial": True, "selection": [parts[number] for number in sorted(parts)]}


def fetch_files_of_earlier_task(
    blobs: Blobs, task: Task, prediction_range: FileByteRange | None, features: str | None
) -> EarlierTask:
    """Fetch held-out data, stored predictions and features of an earlier task."""
    held_out = _fetch_held_out_dataset(blobs, task)
    is_kept = held_out is not None
    return EarlierTask(
        number=task.number,
        classes=sorted(task.classes),
        held_out=held_out,
        answers=prediction_range if is_kept else None,
        features=fetch_blob_if_undamaged(blobs, features)
        if is_kept and features is not None
        else None,
        traces=_fetch_image_hash_file(blobs, task) if is_kept else None,
    )


def find_reusable_held_out_features(tasks: list[Task], parts: list[VersionPart]) -> dict[int, str]:
    """Return task → digest of stored held-out features computed by the same backbone."""
    backbone = [(part.name, part.sha256) for part in parts if part.type == BACKBONE]
    return {
        task.number: task.features_sha256
        for task in tasks
        if task.features_sha256 is not None
        and task.held_out_sha256 is not None
        and task.features_key == digest_held_out_feature_inputs(task.held_out_sha256, backbone)
    }


def fetch_blob_if_undamaged(blobs: Blobs, digest: str) -> Path | None:
    """Fetch a stored blob that could be computed again; None if it is deleted or damaged."""
    try:
        return blobs.fetch_verified_file(digest)
    except StoredObjectDamaged:
        return None


def find_stored_predictions_by_task(
    session: Session, parent: Version
) -> dict[int, StoredPredictionsLocation]:
    """Find the parent version's stored predictions by task."""
    query = (
        select(VersionTaskResult.task, VersionTaskResult.answers, Task.answers_key)
        .join(
            Task,
            (Task.model_id == VersionTaskResult.model_id) & (Task.number == VersionTaskResult.task),
        )
        .where(
            VersionTaskResult.model_id == parent.model_id,
            VersionTaskResult.version == parent.number,
        )
    )
    return {
        task: StoredPredictionsLocation(
            digest, TaskPredictionsPlaceInBlob(parent.number, task, key)
        )
        for task, digest, key in session.execute(query)
        if digest is not None
    }


def decrypt_stored_predictions_to_one_file(
    stored: Mapping[int, StoredPredictionsLocation], files: Mapping[str, Path | None], folder: Path
) -> dict[int, FileByteRange]:
    """Decrypt stored predictions of several tasks to one file; return each task's range in it.

    Those that are damaged are left out: the job computes them with the parent.

    Args:
        stored: predictions by task.
        files: the file of each blob of predictions; None if the blob is damaged or deleted.
    """
    path = folder / "answers.bin"
    written: dict[int, FileByteRange] = {}
    with path.open("wb") as out:
        for task, location in stored.items():
            blob = files[location.sha256]
            if blob is None:
                continue
            begin = out.tell()
            # Decrypted as a whole before anything is written, so an error leaves no partial range.
            try:
                out.write(decrypt_predictions(blob, location.place))
            except ValueError:
                continue
            written[task] = FileByteRange(path=path, begin=begin, end=out.tell())
    return written


def _fetch_held_out_dataset(blobs: Blobs, task: Task) -> Path | None:
    is_missing = task.held_out_sha256 is None or task.held_out_deleted_at or task.data_deleted_at
    if is_missing or not task.n_held_out or task.held_out_sha256 is None:
        return None
    return blobs.fetch_verified_file(task.held_out_sha256)


def _fetch_image_hash_file(blobs: Blobs, task: Task) -> Path | None:
    """Fetch a task's trace file of image hashes; None if it has none, or the file is damaged."""
    if task.traces_sha256 is None or task.held_out_deleted_at is not None:
        return None
    return fetch_blob_if_undamaged(blobs, task.traces_sha256)


def _write_training_paths(traces: Path | None, folder: Path) -> Path | None:
    """Write a file with the paths of a task's training images; None if its traces are unusable."""
    if traces is None:
        return None
    try:
        stored_traces = read_image_fingerprints(traces)
    except ValueError:
        return None
    path = folder / "paths.json"
    # The data report names suspicious images by the paths that they were uploaded under.
    path.write_text(json.dumps(stored_traces.names[: len(stored_traces.train)]))
    return path
