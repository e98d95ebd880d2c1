"""Comparison of the old and the new model of a rebase on the same held-out images.

`core.rebase.rebase_plan` decides with the database what is compared. The predictions of both are
read here, so these functions run where an API process does its heavy work.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from core.comparisons.compare import prediction_flip_statistics_to_json
from core.contract.responses.versions.rebase import RebaseMissing, RebaseOut, RebaseTask, Share
from core.database.session import Database
from core.errors import StoredObjectDamaged
from core.ingest.dataset import memory_map_image_dataset
from core.ingest.findings.traces import read_image_fingerprints
from core.ingest.stored_predictions import (
    decrypt_predictions,
    parse_predictions_by_known_class_count,
    read_encrypted_predictions,
)
from core.rebase.rebase_plan import (
    MeasuredTaskResults,
    RebaseProgress,
    RebaseTaskProgress,
    compute_rebase_progress,
    find_rebase_models,
    find_rebase_of_model,
)
from core.requests.actor import Actor, find_model, translate_deleted_file_errors
from core.requests.timestamps import format_rfc3339
from core.statistics import flips
from core.statistics.flips import PredictionFlipCounts
from core.storage import Blobs

Made = TypeVar("Made")
_OTHER_LABELS = (
    "Its held-out images have other labels in the new model, so that answers to them "
    "are not compared."
)
_OTHER_IMAGES = (
    "Other images are held out in the new model, so that answers to them are not compared."
)


@dataclass(frozen=True)
class RebaseComparison:
    """Comparison of the old and new model of a rebase: a plan with prediction changes by task.

    Tasks whose images turned out to differ are marked in the plan.
    """

    plan: RebaseProgress
    flips: dict[int, PredictionFlipCounts]


def compare_rebase_by_images(db: Database, blobs: Blobs, actor: Actor, model: str) -> RebaseOut:
    """Compare the old and new model of a rebase image by image, and return the response.

    Raises:
        NotFound: the caller sees no such model, or no rebase of it.
        StoredObjectDamaged: a file is missing or damaged; the message says which one and what to do.
    """
    return rebase_comparison_to_json(compare_rebased_models(db, blobs, actor, model))


def compare_rebase_by_counts(db: Database, actor: Actor, model: str) -> RebaseOut | None:
    """Compare the old and new model of a rebase by counts in the database alone.

    Return None if the model is in no rebase.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        pair = find_rebase_of_model(session, find_model(session, actor, model))
        return (
            None
            if pair is None
            else rebase_comparison_to_json(
                RebaseComparison(compute_rebase_progress(session, *pair), {})
            )
        )


def compare_rebased_models(
    db: Database, blobs: Blobs, actor: Actor, model: str
) -> RebaseComparison:
    """Compare the old and new model of a rebase, image by image where both have stored predictions.

    For errors see `compare_rebase_by_images`.
    """
    while True:
        plan = _compute_rebase_progress_for_caller(db, actor, model)
        try:
            return _call_with_damage_explained(
                db, actor, plan, partial(_build_rebase_comparison, blobs, plan)
            )
        except StoredObjectDamaged:
            if _compute_rebase_progress_for_caller(db, actor, model) == plan:
                # otherwise data was deleted between rows and files: try again with the new plan
                raise


def rebase_comparison_to_json(comparison: RebaseComparison) -> RebaseOut:
    """Convert a rebase comparison to its response."""
    plan = comparison.plan
    tasks = [_rebase_task_to_json(task, comparison.flips.get(task.number)) for task in plan.tasks]
    total = sum(comparison.flips.values(), PredictionFlipCounts())
    missing: list[RebaseMissing] = [{"task": None, "detail": text} for text in plan.waiting]
    missing += [{"task": one.number, "detail": one.missing} for one in plan.tasks if one.missing]
    both = total.both_right
    return {
        "state": "open" if plan.finished_at is None else "finished",
        "old": plan.old,
        "new": plan.new,
        "tasks": tasks,
        "totals": {
            "old": _build_accuracy_share(both + total.negative, total.n),
            "new": _build_accuracy_share(both + total.positive, total.n),
            "flips": prediction_flip_statistics_to_json(total),
        },
        "ready": plan.is_complete,
        "missing": missing,
        "next": _describe_next_rebase_step(plan, missing),
        "warnings": _list_rebase_warnings(plan, total),
        "finished_at": format_rfc3339(plan.finished_at),
    }


def _compute_rebase_progress_for_caller(db: Database, actor: Actor, model: str) -> RebaseProgress:
    with db.read() as session:
        return compute_rebase_progress(session, *find_rebase_models(session, actor, model))


def _call_with_damage_explained(
    db: Database, actor: Actor, plan: RebaseProgress, use: Callable[[], Made]
) -> Made:
    """Call `use`, and explain damage of a file as an error about the model that it belongs to.

    Damage of a file is explained for the model that it belongs to.
    """
    if plan.old["deleted"]:
        return use()
    with (
        translate_deleted_file_errors(db, actor, plan.new["id"]),
        translate_deleted_file_errors(db, actor, plan.old["id"]),
    ):
        return use()


def _build_rebase_comparison(blobs: Blobs, plan: RebaseProgress) -> RebaseComparison:
    flips_by_task: dict[int, PredictionFlipCounts] = {}
    tasks: list[RebaseTaskProgress] = []
    for task in plan.tasks:
        if not task.by_image or task.old is None or task.new is None:
            tasks.append(task)
            continue
        reason, task_flips = _count_prediction_flips_of_task(blobs, task.old, task.new)
        if task_flips is None:
            tasks.append(replace(task, detail=reason, missing=reason, by_image=False))
            continue
        tasks.append(task)
        flips_by_task[task.number] = task_flips
    return RebaseComparison(replace(plan, tasks=tasks), flips_by_task)


def _count_prediction_flips_of_task(
    blobs: Blobs, old: MeasuredTaskResults, new: MeasuredTaskResults
) -> tuple[str, PredictionFlipCounts | None]:
    """Count prediction changes between both models on the same images; None and why if images
    differ.
    """
    (truth, correct), (new_truth, new_correct) = (
        _read_labels_and_correctness(blobs, side) for side in (old, new)
    )
    if len(truth) != len(new_truth) or not np.array_equal(truth, new_truth):
        return _OTHER_LABELS, None
    # If one side has no traces, equal labels have to suffice.
    if (
        old.traces is not None
        and new.traces is not None
        and _read_held_out_paths(blobs, old) != _read_held_out_paths(blobs, new)
    ):
        return _OTHER_IMAGES, None
    return "", flips.count_prediction_flips(correct, new_correct)


def _read_labels_and_correctness(
    blobs: Blobs, side: MeasuredTaskResults
) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.bool_]]:
    """Read the true labels of held-out images, and a mask of those predicted correctly."""
    assert side.predictions is not None, "it is compared image by image"
    path = blobs.fetch_verified_file(side.predictions)
    rows = np.array(side.rows, np.str_)
    ranked = parse_predictions_by_known_class_count(decrypt_predictions(path, side.place))
    if ranked is not None:
        predicted, truth = (
            ranked.rows,
            _convert_head_rows_to_labels(rows, ranked.targets, side),
        )
    else:  # stored by an older release, without the true rows beside the predictions
        assert side.held_out is not None, "answers are kept as long as the images"
        predicted, _ = read_encrypted_predictions(path, side.place)
        _, numbers = memory_map_image_dataset(blobs.fetch_verified_file(side.held_out))
        truth = np.array(side.labels, np.str_)[numbers]
        if len(truth) != len(predicted):
            raise _make_corrupt_predictions_error(
                side, f"has {len(predicted)} answers to {len(truth)} images"
            )
    return truth, _convert_head_rows_to_labels(rows, predicted, side) == truth


def _convert_head_rows_to_labels(
    rows: npt.NDArray[np.str_], predicted: npt.NDArray[np.int32], side: MeasuredTaskResults
) -> npt.NDArray[np.str_]:
    # NumPy would count a negative row from the end instead of refusing it.
    if len(predicted) and not 0 <= int(predicted.min()) <= int(predicted.max()) < len(rows):
        raise _make_corrupt_predictions_error(
            side, f"names row {int(predicted.max())} of a head with {len(rows)} classes"
        )
    return rows[predicted]


def _make_corrupt_predictions_error(side: MeasuredTaskResults, what: str) -> StoredObjectDamaged:
    key = Blobs.make_blob_key(side.predictions or "")
    return StoredObjectDamaged(f"A file of answers {what}.", extra={"object": key})


def _read_held_out_paths(blobs: Blobs, side: MeasuredTaskResults) -> list[str]:
    """Read the paths of the held-out images in their archive, in the order of the dataset."""
    assert side.traces is not None
    try:
        traces = read_image_fingerprints(blobs.fetch_verified_file(side.traces))
    except ValueError as error:
        raise StoredObjectDamaged(
            str(error), extra={"object": Blobs.make_blob_key(side.traces)}
        ) from error
    return traces.names[len(traces.train) :]


def _rebase_task_to_json(
    task: RebaseTaskProgress, task_flips: PredictionFlipCounts | None
) -> RebaseTask:
    """Convert one task of a rebase comparison to its response entry."""
    comparable = task.old is not None and task.new is not None and task.arrived and not task.missing
    return {
        "task": task.number,
        "name": task.name,
        "classes": task.classes,
        "images": task.images,
        "sha256": task.sha256,
        "duplicates_policy": task.duplicates,
        "arrival": task.arrival,
        "new_task": task.new_task,
        "standing": task.standing,
        "arrived": task.arrived,
        "old": _build_measured_accuracy_share(task.old),
        "new": _build_measured_accuracy_share(task.new) if comparable else None,
        "flips": None if task_flips is None else prediction_flip_statistics_to_json(task_flips),
        "detail": task.missing or task.detail or None,
    }


def _build_measured_accuracy_share(measured: MeasuredTaskResults | None) -> Share | None:
    return None if measured is None else _build_accuracy_share(measured.correct, measured.total)


def _build_accuracy_share(correct: int, total: int) -> Share | None:
    """Build a response's share of correct predictions with confidence interval; None without
    images.
    """
    interval = flips.compute_wilson_interval(correct, total)
    if interval is None:
        return None
    return {
        "correct": correct,
        "total": total,
        "accuracy": correct / total,
        "interval": list(interval),
    }


def _describe_next_rebase_step(plan: RebaseProgress, missing: list[RebaseMissing]) -> str:
    """Describe the user's next step in a rebase."""
    old, new = plan.old["name"], plan.new["name"]
    if plan.finished_at is not None:
        return (
            f"{new} stands in the place of {old}. POST /v1/models/{old}/rebase/finish puts "
            f"{old} back there."
        )
    if missing:
        more = f" {len(missing) - 1} more things are missing." if len(missing) > 1 else ""
        return f"{missing[0]['detail']}{more}"
    return (
        f"Every batch has arrived and is measured. POST /v1/models/{new}/rebase/finish moves "
        f"production: {new} takes the name {old}, and the old model stays beside it under another "
        f"name."
    )


def _list_rebase_warnings(plan: RebaseProgress, total: PredictionFlipCounts) -> list[str]:
    """List warnings about a rebase."""
    warnings = []
    if (
        total.negative > total.positive
        and flips.compute_two_sided_mcnemar_p(total.negative, total.positive) < 0.05
    ):
        warnings.append(
            f"{plan.new['name']} is significantly worse: of {total.n} images it gets "
            f"{total.negative} wrong that {plan.old['name']} gets right, and {total.positive} the "
            f"other way round."
        )
    warnings += plan.notes
    if plan.finished_at is None:
        warnings.append(
            f"Clients that name {plan.old['name']} by its name get the new model once production "
            f"moves; those that use the id {plan.old['id']} must change it to {plan.new['id']}."
        )
    return warnings
