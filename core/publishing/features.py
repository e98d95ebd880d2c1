"""Comparison of a new version's features with its ancestors', by the accuracy of linear
discriminants on them.

An ancestor was measured among the classes that it knows. The new version is counted among the same
classes (`baseline_later`) and on the tasks that both measured, because each new class offers one
more wrong answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.features import AncestorFeatureAccuracy, AncestorFeatureComparison
from core.contract.jobs.job_result import LearnJobResult
from core.database.measurements import ALL_TASKS, EACH_TASK, FEATURES
from core.database.tables import Job, Model, Version, VersionMeasurement
from core.lineage.feature_collapse import LEAST_IMAGES, find_ancestor_before_feature_collapse
from core.recipe.photo_base import trains_backbone

LAST_VERSIONS = 20
"""Maximum number of published ancestors to compare with."""
_LDA = "baseline_lda"
ByTask = Mapping[str, tuple[int, int]]
"""Correct predictions and images by task."""


@dataclass(frozen=True)
class AncestorWithFeatureAccuracy:
    """An earlier version with its measured accuracy of features, for comparison.

    Attributes:
        classes: classes of its head; None if each task has its own head.
        tasks: correct predictions of the discriminant on its features, and images, by task.
        is_good: True if its own features had not collapsed.
    """

    number: int
    classes: list[str] | None
    tasks: ByTask
    is_good: bool


def compare_feature_accuracy_with_ancestors(
    session: Session, model: Model, job: Job, result: LearnJobResult
) -> AncestorFeatureComparison:
    """Compare the accuracy of a simple classifier on a new version's features with that on its
    ancestors' features.
    """
    if not trains_backbone(job.recipe):
        return _build_unmade_feature_comparison("the batch leaves the features as they were")
    numbers = _list_published_ancestors(session, model, job.parent_version or 0)
    if not numbers:
        return _build_unmade_feature_comparison("it is the first version of its line")
    if result.baseline_lda is None:
        return _build_unmade_feature_comparison(
            "the features of the version were not measured: too few held-out images, or too many "
            "features"
        )
    ancestors = _read_measured_ancestors(session, model, numbers)
    if not ancestors:
        return _build_unmade_feature_comparison(
            "the features of no version before it were measured"
        )
    shares = [
        share
        for one in ancestors
        if (share := compare_feature_accuracy_with_ancestor(model.scenario, result, one))
        is not None
    ]
    why = (
        f"no version before it was measured on {LEAST_IMAGES} held-out images of the same tasks "
        f"and classes"
    )
    return {"ancestors": shares, "missing": None if shares else why}


def _list_published_ancestors(session: Session, model: Model, number: int) -> list[int]:
    """Return the numbers of the last published ancestors of a version, newest first, without
    version 0.
    """
    numbers: list[int] = []
    ancestor: int | None = number
    while ancestor and len(numbers) < LAST_VERSIONS:
        query = select(Version.parent, Version.status).where(
            Version.model_id == model.id, Version.number == ancestor
        )
        parent, status = session.execute(query).one()
        if status == "published":
            numbers.append(ancestor)
        ancestor = parent
    return numbers


def _read_measured_ancestors(
    session: Session, model: Model, numbers: list[int]
) -> list[AncestorWithFeatureAccuracy]:
    """Return the ancestors whose feature accuracy was measured, newest first."""
    of_these = (VersionMeasurement.model_id == model.id, VersionMeasurement.version.in_(numbers))
    by_task = select(VersionMeasurement.version, VersionMeasurement.detail).where(
        *of_these, VersionMeasurement.name == _LDA, VersionMeasurement.task == EACH_TASK
    )
    tasks = {version: detail for version, detail in session.execute(by_task)}
    counted = select(VersionMeasurement.version, VersionMeasurement.detail).where(
        *of_these, VersionMeasurement.name == FEATURES, VersionMeasurement.task == ALL_TASKS
    )
    collapsed = {
        version
        for version, detail in session.execute(counted)
        if find_ancestor_before_feature_collapse(detail) is not None
    }
    query = select(Version.number, Version.manifest).where(
        Version.model_id == model.id, Version.number.in_(tasks)
    )
    heads = {
        number: None if manifest.heads else manifest.classes
        for number, manifest in session.execute(query)
    }
    return [
        AncestorWithFeatureAccuracy(number, heads[number], tasks[number], number not in collapsed)
        for number in numbers
        if number in tasks
    ]


def compare_feature_accuracy_with_ancestor(
    scenario: str, result: LearnJobResult, ancestor: AncestorWithFeatureAccuracy
) -> AncestorFeatureAccuracy | None:
    """Compare the feature accuracy of a version and an ancestor on the tasks that both know.

    Return None for too few images or other classes.
    """
    n_known: int | None = None
    if scenario == "class":
        classes = ancestor.classes or []
        # Rows are compared as numbers, which only fits if the first classes are the same.
        if not classes or result.classes[: len(classes)] != classes:
            return None
        # If no class was added since, the usual count is among these classes anyway.
        n_known = len(classes) if len(result.classes) > len(classes) else None
    later = result.baseline_later
    if n_known is not None and later is None:
        return None
    assert result.baseline_lda is not None
    mine: ByTask = result.baseline_lda.tasks
    # On other tasks, a difference would be one of the tasks and not of the features.
    both = sorted(mine.keys() & ancestor.tasks.keys())
    right = sum(mine[task][0] for task in both)
    if n_known is not None and later is not None:
        right += sum(
            count
            for task in both
            for row, count in later.get(task, {}).items()
            if int(row) >= n_known
        )
    images = sum(mine[task][1] for task in both)
    right_before, images_before = (sum(ancestor.tasks[task][i] for task in both) for i in (0, 1))
    if min(images, images_before) < LEAST_IMAGES:
        return None
    return {
        "version": ancestor.number,
        "images": images,
        "right": right,
        "images_before": images_before,
        "right_before": right_before,
        "is_good": ancestor.is_good,
    }


def _build_unmade_feature_comparison(why: str) -> AncestorFeatureComparison:
    """Return a feature comparison that was not made, with the reason."""
    return {"ancestors": [], "missing": why}
