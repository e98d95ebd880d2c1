"""Counts of a new version's losses and gains, image by image, for the checks of its gate.

Comparisons use the held-out images of earlier tasks, except that the batch's own images show if it
was learned. The predictions of the new version and of its parent are files of the job's result;
those of other versions are read from the store. Rows of a head are compared as numbers: a version
that grew from another has that one's classes first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.gate import GateOut
from core.contract.jobs.job_result import LearnJobResult
from core.contract.losses import (
    GateComparison,
    GateComparisons,
    GateDriftComparison,
    TaskDriftFlipCounts,
)
from core.contract.manifest import Manifest
from core.database.session import Database
from core.database.tables import Job, Model, Task, Version, VersionTaskResult
from core.edits.record import read_edited_task_numbers
from core.errors import StoredObjectDamaged
from core.execution.result import JobProcessResult
from core.ingest.stored_predictions import (
    TaskPredictionsPlaceInBlob,
    decrypt_predictions,
    parse_predictions,
    parse_predictions_by_known_class_count,
    read_predictions_written_by_job,
)
from core.jobs.fence import JobClaim
from core.lineage.checks import IMAGE_CHECKS
from core.lineage.judgement import get_gate_limits_of_job
from core.publishing.flip_tally import (
    MOST_CLASSES,
    PredictionFlipTally,
    Rows,
    TaskPredictionsOfNewVersion,
)
from core.statistics.flips import Mask, compute_one_sided_mcnemar_p
from core.statistics.test_power import SIGNIFICANT, compute_detectable_loss_and_needed_images
from core.storage import Blobs

LAST_VERSIONS = 20
"""Number of the last published versions among which the best one on each task is looked for."""
_NO_EARLIER = "no earlier task has held-out images that both versions answer"


@dataclass(frozen=True)
class _ComparedEarlierVersion:
    """A version that the new one is compared with; `predictions`: digests of its predictions by
    task.
    """

    number: int
    manifest: Manifest
    predictions: Mapping[int, str]


@dataclass(frozen=True)
class _FlipComparisonDatabaseRows:
    """Database rows that comparing predictions of versions needs.

    Attributes:
        own_task: number of the job's task.
        tasks: tasks whose held-out images are still there.
        keys: keys that read stored predictions on them.
        production: None if production is version 0, which was taught nothing.
        best: for each task, the one of the last versions that predicted most of its images
            correctly.
    """

    model: Model
    gate: GateOut
    own_task: int
    tasks: set[int]
    keys: Mapping[int, str | None]
    parent: _ComparedEarlierVersion
    production: _ComparedEarlierVersion | None
    best: Mapping[int, _ComparedEarlierVersion]


def compare_newly_wrong_images_for_gate(
    db: Database,
    blobs: Blobs,
    claim: JobClaim,
    result: JobProcessResult[LearnJobResult],
    production: int | None,
) -> GateComparisons | None:
    """Count the images that a finished job's version gets newly wrong, if its gate has a check for
    them.

    Args:
        result: result of the job.
        production: number of the version in production.
    """
    if result.document.problem is not None:  # its predictions are no rows of classes
        return None
    facts = _read_rows_for_flip_comparison(db, claim, production)
    if facts is None or not _has_production_classes_as_prefix(result.document, facts.production):
        return None
    return _PredictionFlipComparison(blobs, facts, result).build_gate_comparisons()


def _has_production_classes_as_prefix(
    document: LearnJobResult, production: "_ComparedEarlierVersion | None"
) -> bool:
    """Return True if the first classes of the result are those of the production version.

    Rows are compared by their numbers; an edit of the classes may have changed these.
    """
    production_classes = [] if production is None else production.manifest.classes or []
    return bool(document.heads) or document.classes[: len(production_classes)] == production_classes


def _read_rows_for_flip_comparison(
    db: Database, claim: JobClaim, production: int | None
) -> _FlipComparisonDatabaseRows | None:
    """Read the rows for comparing predictions of versions; None if the gate has no check by images."""
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        model = session.get_one(Model, job.model_id)
        gate = get_gate_limits_of_job(model, job)
        if all(gate.get(name) is None for name in IMAGE_CHECKS):
            return None
        has_images = Task.held_out_deleted_at.is_(None) & Task.data_deleted_at.is_(None)
        query = select(Task.number, Task.answers_key).where(Task.model_id == model.id, has_images)
        edited = read_edited_task_numbers(session, job.id)
        keys = {task: key for task, key in session.execute(query) if task not in edited}
        tasks = set(keys)
        numbers = {job.parent_version or 0, production or 0}
        stored = _read_prediction_digests(session, model, numbers)
        # Without that check, no predictions of up to twenty more versions are read.
        best = (
            _find_best_earlier_versions(session, model, tasks)
            if gate.get("drifted") is not None
            else {}
        )
        manifests = _read_version_manifests(session, model, {*numbers, *best.values()})
        stored |= _read_prediction_digests(session, model, set(best.values()) - numbers)
        versions = {
            n: _ComparedEarlierVersion(n, manifests[n], stored.get(n, {})) for n in manifests
        }
        return _FlipComparisonDatabaseRows(
            model=model,
            gate=gate,
            own_task=claim.task_number or 0,
            tasks=tasks,
            keys=keys,
            parent=versions[job.parent_version or 0],
            production=versions[production] if production else None,
            best={task: versions[number] for task, number in best.items()},
        )


def _read_prediction_digests(
    session: Session, model: Model, numbers: set[int]
) -> dict[int, dict[int, str]]:
    """Return the digests of stored predictions, by version and task."""
    query = select(
        VersionTaskResult.version, VersionTaskResult.task, VersionTaskResult.answers
    ).where(
        VersionTaskResult.model_id == model.id,
        VersionTaskResult.version.in_(numbers),
        VersionTaskResult.answers.is_not(None),
    )
    stored: dict[int, dict[int, str]] = {}
    for version, task, digest in session.execute(query):
        if digest is not None:
            stored.setdefault(version, {})[task] = digest
    return stored


def _find_best_earlier_versions(session: Session, model: Model, tasks: set[int]) -> dict[int, int]:
    """Return, for each task, the one of the last published versions with most correct predictions.

    Of equal ones, it is the newest.
    """
    published = (Version.model_id == model.id, Version.status == "published", Version.number > 0)
    last = (
        select(Version.number)
        .where(*published)
        .order_by(Version.number.desc())
        .limit(LAST_VERSIONS)
    )
    query = select(
        VersionTaskResult.task, VersionTaskResult.version, VersionTaskResult.correct
    ).where(
        VersionTaskResult.model_id == model.id,
        VersionTaskResult.version.in_(list(session.scalars(last))),
        VersionTaskResult.answers.is_not(None),
    )
    best: dict[int, tuple[int, int]] = {}
    for task, version, correct in session.execute(query):
        if task in tasks:
            # Tuples compare by correct predictions, then by number: equal counts go to the newest.
            best[task] = max(best.get(task, (-1, 0)), (correct, version))
    return {task: version for task, (_, version) in best.items()}


def _read_version_manifests(
    session: Session, model: Model, numbers: set[int]
) -> dict[int, Manifest]:
    """Return the manifests of versions by number."""
    query = select(Version.number, Version.manifest).where(
        Version.model_id == model.id, Version.number.in_(numbers)
    )
    return {number: manifest for number, manifest in session.execute(query)}


class _PredictionFlipComparison:
    """Comparison of the new version's predictions with those of earlier versions, task by task."""

    def __init__(
        self,
        blobs: Blobs,
        facts: _FlipComparisonDatabaseRows,
        result: JobProcessResult[LearnJobResult],
    ) -> None:
        self._blobs = blobs
        self._facts = facts
        self._document = result.document
        self._predictions = read_predictions_written_by_job(result.folder, result.document.answers)
        self._heads = {head.task: head.classes for head in result.document.heads}
        self._forgotten, self._confused, self._classes = (
            PredictionFlipTally(),
            PredictionFlipTally(),
            PredictionFlipTally(),
        )
        self._drifts: dict[int, tuple[PredictionFlipTally, TaskDriftFlipCounts]] = {}
        self._is_ranked = True

    def build_gate_comparisons(self) -> GateComparisons:
        """Count newly wrong images against the production version and the best earlier versions."""
        for task in sorted(self._facts.tasks):
            if (
                task != self._facts.own_task
                and (part := self._read_new_version_predictions_on_task(task)) is not None
            ):
                self._tally_flips_against_production(part)
                self._record_drift_against_best_version(part)
        production = self._facts.production
        against = None if production is None else production.number
        forgotten = self._build_gate_comparison_or_reason(self._forgotten, against)
        confused = self._build_gate_comparison_or_reason(self._confused, against)
        if confused["missing"] is None and not self._brings_new_classes():
            confused = _build_missing_gate_comparison(against, "the batch brings no new class")
        new_classes, known_classes = self._compare_batch_by_new_and_known_classes()
        if self._facts.model.held_out == "counts":  # the batch's images are deleted by this publish
            new_classes["pictures"], known_classes["pictures"] = [], []
        return {
            "forgotten": forgotten,
            "confused": confused,
            "class_lost": self._build_gate_comparison_or_reason(
                self._classes, against, by_recall=True
            ),
            "drifted": self._build_drift_comparison(),
            "new": new_classes,
            "known": known_classes,
            "visible": vars(
                compute_detectable_loss_and_needed_images(
                    forgotten["images"], self._facts.gate.get("forgotten") or 0.0
                )
            ),  # type: ignore[typeddict-item]
        }

    def _read_new_version_predictions_on_task(
        self, task: int
    ) -> TaskPredictionsOfNewVersion | None:
        """Return the new version's predictions on a task's held-out images, or None."""
        data = self._predictions.get(("new", task))
        if data is None:
            return None
        ranked = parse_predictions_by_known_class_count(data)
        if ranked is None:  # the job resumed from a snapshot written by an older release
            self._is_ranked = False
            return None
        is_apart = self._facts.model.scenario == "task"
        names = self._heads.get(task, []) if is_apart else list(self._document.classes)
        return TaskPredictionsOfNewVersion(task, task if is_apart else 0, names, ranked)

    def _list_classes_of_prediction_rows(
        self, version: _ComparedEarlierVersion, task: int
    ) -> list[str]:
        """Return the classes that the rows of a version's predictions on a task mean."""
        if self._facts.model.scenario == "task":
            head = version.manifest.find_head_entry(task)
            return list(head.classes) if head is not None else []
        return list(version.manifest.classes or self._facts.model.classes or [])

    def _read_earlier_predictions_and_class_count(
        self, version: _ComparedEarlierVersion, part: TaskPredictionsOfNewVersion
    ) -> tuple[Rows, int] | None:
        """Read a version's predictions on a task and its number of classes; None if they cannot be
        compared.
        """
        old_names = self._list_classes_of_prediction_rows(version, part.task)
        # Rows are compared as numbers, which fits only if both versions count the classes alike.
        if not old_names or part.names[: len(old_names)] != old_names:
            return None
        # The job has just predicted with the parent, so nothing need be fetched.
        is_parent = version is self._facts.parent
        data = self._predictions.get(("parent", part.task)) if is_parent else None
        digest = version.predictions.get(part.task)
        if data is None and digest is not None:
            path = self._fetch_predictions_if_sound(digest)
            location = TaskPredictionsPlaceInBlob(
                version.number, part.task, self._facts.keys[part.task]
            )
            data = None if path is None else decrypt_predictions(path, location)
        if data is None:
            return None
        rows, _ = parse_predictions(data)
        # Other counts mean other images, which cannot be compared one by one.
        return (rows, len(old_names)) if len(rows) == len(part.ranked.rows) else None

    def _fetch_predictions_if_sound(self, digest: str) -> Path | None:
        """Fetch a version's stored predictions, and return their local path.

        Return None if they are damaged or were deleted meanwhile. A missing comparison must not
        stop the lineage. The damage is marked for other users of the blob.
        """
        try:
            return self._blobs.fetch_verified_file(digest)
        except StoredObjectDamaged:
            return None

    def _tally_flips_against_production(self, part: TaskPredictionsOfNewVersion) -> None:
        """Count a task's images whose prediction turned wrong or right against the production
        version.
        """
        production = self._facts.production
        old_predictions = (
            None
            if production is None
            else self._read_earlier_predictions_and_class_count(production, part)
        )
        if old_predictions is None:
            return
        old, n_known = old_predictions
        # Among the classes that production knows, since each new class is one more wrong answer.
        best, targets, all_images = (
            part.ranked.choose_best_known_classes(n_known),
            part.ranked.targets,
            _make_mask_of_all_images(part),
        )
        right, still_right, now = old == targets, best == targets, part.ranked.rows == targets
        self._forgotten.add_flips_of_task_images(
            part, old, best, right & ~still_right, still_right & ~right, all_images
        )
        self._classes.add_flips_of_task_images(
            part, old, part.ranked.rows, right & ~now, now & ~right, all_images
        )
        # Classes that are new in this batch come after those of the parent.
        fresh = part.ranked.rows >= len(
            self._list_classes_of_prediction_rows(self._facts.parent, part.task)
        )
        self._confused.add_flips_of_task_images(
            part, old, part.ranked.rows, right & fresh, now & ~right, all_images
        )

    def _record_drift_against_best_version(self, part: TaskPredictionsOfNewVersion) -> None:
        """Count a task's images whose prediction turned wrong or right against the best of the last
        versions.
        """
        version = self._facts.best.get(part.task)
        old_predictions = (
            None
            if version is None
            else self._read_earlier_predictions_and_class_count(version, part)
        )
        if version is None or old_predictions is None or len(np.unique(part.ranked.targets)) < 2:
            # with one class, images flip together whenever the balance between classes moves
            return
        old, n_known = old_predictions
        best, targets = part.ranked.choose_best_known_classes(n_known), part.ranked.targets
        right, still_right = old == targets, best == targets
        negative, positive = right & ~still_right, still_right & ~right
        tally = PredictionFlipTally()
        tally.add_flips_of_task_images(
            part, old, best, negative, positive, _make_mask_of_all_images(part)
        )
        counts = TaskDriftFlipCounts(
            task=part.task,
            against=version.number,
            images=len(targets),
            negative=int(negative.sum()),
            positive=int(positive.sum()),
        )
        self._drifts[part.task] = (tally, counts)

    def _build_gate_comparison_or_reason(
        self, tally: PredictionFlipTally, against: int | None, *, by_recall: bool = False
    ) -> GateComparison:
        if against is None:
            return _build_missing_gate_comparison(
                None, "production is version 0, which was taught nothing"
            )
        if not tally.counts:
            return _build_missing_gate_comparison(against, self._explain_no_comparison())
        return tally.build_gate_comparison(against, by_recall=by_recall)

    def _explain_no_comparison(self) -> str:
        """Explain why no images of the versions were compared."""
        if not self._is_ranked:
            return "the job began before the best old class was kept beside each answer"
        if self._facts.model.held_out == "counts":
            return 'the model keeps counts of held-out images alone ("held_out": "counts")'
        return _NO_EARLIER

    def _build_drift_comparison(self) -> GateDriftComparison:
        """Return by task the counts of changed predictions, most significant loss first, with
        examples of tasks that drifted.
        """
        limit = self._facts.gate.get("drifted") or 0.0

        def compute_loss_p_value(counts: TaskDriftFlipCounts) -> float:
            return compute_one_sided_mcnemar_p(counts["negative"], counts["positive"])

        tasks = sorted((counts for _, counts in self._drifts.values()), key=compute_loss_p_value)
        drifted = PredictionFlipTally()
        for counts in tasks:
            net = (counts["negative"] - counts["positive"]) / max(1, counts["images"])
            # Bonferroni's correction, as in the check.
            if net > limit and compute_loss_p_value(counts) * len(tasks) < SIGNIFICANT:
                drifted.merge_tally(self._drifts[counts["task"]][0])
        why = (
            "no earlier task has held-out images of two classes" if self._forgotten.counts else None
        )
        described = (
            drifted.build_gate_comparison(None)
            if tasks
            else _build_missing_gate_comparison(None, why or self._explain_no_comparison())
        )
        totals = {
            name: sum(counts[name] for counts in tasks)
            for name in ("images", "negative", "positive")
        }
        return {**described, **totals, "tasks": tasks[:MOST_CLASSES], "compared": len(tasks)}  # type: ignore[typeddict-item]

    def _brings_new_classes(self) -> bool:
        """Return True if the job's batch brings classes that the parent version does not know."""
        labels = self._heads.get(self._facts.own_task) if self._heads else self._document.classes
        return len(labels or []) > len(
            self._list_classes_of_prediction_rows(self._facts.parent, self._facts.own_task)
        )

    def _compare_batch_by_new_and_known_classes(self) -> tuple[GateComparison, GateComparison]:
        """Count the batch's own held-out images, of its new classes and of classes that production
        knows.
        """
        part = (
            self._read_new_version_predictions_on_task(self._facts.own_task)
            if self._facts.own_task in self._facts.tasks
            else None
        )
        production = self._facts.production
        against = None if production is None else production.number
        if part is None or not len(part.ranked.rows):
            nothing = _build_missing_gate_comparison(against, "the batch has no held-out images")
            return nothing, nothing
        targets, predicted = part.ranked.targets, part.ranked.rows
        is_new = targets >= len(
            self._list_classes_of_prediction_rows(self._facts.parent, part.task)
        )
        new_tally, known_tally = PredictionFlipTally(), PredictionFlipTally()
        # Nothing predicted these classes before: a wrong image counts as lost, a right one as gained.
        new_tally.add_flips_of_task_images(
            part, predicted, predicted, predicted != targets, predicted == targets, is_new
        )
        old_predictions = (
            None
            if production is None
            else self._read_earlier_predictions_and_class_count(production, part)
        )
        if old_predictions is not None:
            old, size = old_predictions
            best = part.ranked.choose_best_known_classes(size)
            right, still_right = old == targets, best == targets
            known_tally.add_flips_of_task_images(
                part, old, best, right & ~still_right, still_right & ~right, targets < size
            )
        no_known = "production does not answer the batch's images"
        return (
            new_tally.build_gate_comparison(None)
            if new_tally.counts
            else _build_missing_gate_comparison(
                None, "the batch has no held-out images of new classes"
            ),
            known_tally.build_gate_comparison(against)
            if known_tally.counts
            else _build_missing_gate_comparison(against, no_known),
        )


def _make_mask_of_all_images(part: TaskPredictionsOfNewVersion) -> Mask:
    return np.ones(len(part.ranked.rows), bool)


def _build_missing_gate_comparison(against: int | None, why: str) -> GateComparison:
    """Return a gate comparison that was not made, with the reason."""
    return {
        "against": against,
        "images": 0,
        "negative": 0,
        "positive": 0,
        "classes": [],
        "pictures": [],
        "missing": why,
    }
