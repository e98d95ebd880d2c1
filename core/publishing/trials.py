"""The verdict on a trial: what its version would be, without publishing it."""

import math
from pathlib import Path

from sqlalchemy.orm import Session

from core.contract.jobs.trial import TrialMeasurements
from core.contract.part_types import IMAGE_TYPES
from core.database.session import Database
from core.database.tables import Model, Version
from core.files.safetensors_header import read_safetensors_header
from core.jobs.fence import JobClaim
from core.lineage import wording
from core.lineage.accuracy_row import read_accuracy_matrix_row
from core.lineage.coverage import list_taught_tasks
from core.lineage.judgement import read_forecast_loss_rise
from core.publishing import negative_flips
from core.publishing.negative_flips import ProductionComparison
from core.publishing.version_rows import (
    StoredJobResult,
    add_and_judge_version,
    delete_unused_files_of_result,
    restore_blobs_and_lock_publishing_rows,
    store_job_result_files,
)
from core.retention.damage import DatabaseDamageMarks
from core.statistics.matrix_row import compute_version_accuracy_figures
from core.storage import Blobs, ObjectStorage


def judge_trial_version_without_publishing(
    db: Database, store: ObjectStorage, claim: JobClaim, result: Path, cache: Path
) -> TrialMeasurements:
    """Return the gate's verdict and figures of the version that a trial's result would make,
    without publishing it.

    The version is written and judged in a transaction that is rolled back.

    Args:
        result: folder of the result.
        cache: the worker's folder for copies of stored blobs.

    Raises:
        LeaseLost, WrongState, ValueError: see `publish_or_hold_job_result`.
    """
    blobs = Blobs(store, cache, marks=DatabaseDamageMarks(db))
    stored_result = store_job_result_files(db, blobs, claim, result)
    judged: TrialMeasurements | None = None
    while judged is None:  # None: production moved while the versions were compared
        comparison = negative_flips.compare_version_with_production(
            db, blobs, claim, stored_result.folder
        )
        try:
            with db.write() as session:
                judged = _add_and_judge_trial_version(
                    db, session, blobs, claim, stored_result, comparison
                )
                # Judged as if it were published, but nothing of it may remain: it is only a trial.
                raise _TransactionRollback
        except _TransactionRollback:
            pass
    delete_unused_files_of_result(db, blobs, stored_result, set())
    return judged


class _TransactionRollback(Exception):
    """Exception that rolls a transaction back, whose rows were only needed for a verdict."""


def _add_and_judge_trial_version(
    db: Database,
    session: Session,
    blobs: Blobs,
    claim: JobClaim,
    stored_result: StoredJobResult,
    comparison: ProductionComparison,
) -> TrialMeasurements | None:
    """Add the version of a result and judge it; None if production is not the version it was
    compared with.
    """
    publishing = restore_blobs_and_lock_publishing_rows(db, session, blobs, claim, stored_result)
    model = publishing.model
    if negative_flips.find_production_version_number(session, model.id) != comparison.production:
        return None
    version, size = add_and_judge_version(publishing, stored_result, comparison)
    return _summarise_trial_version(session, model, version, stored_result, size)


def _summarise_trial_version(
    session: Session, model: Model, version: Version, stored_result: StoredJobResult, size: int
) -> TrialMeasurements:
    """Return the accuracy, forgetting and size of a trial's version after its verdict."""
    row = read_accuracy_matrix_row(session, model.id, version.number)
    figures = compute_version_accuracy_figures(
        list_taught_tasks(version.manifest), row, model.scenario
    )
    rise = read_forecast_loss_rise(session, model.id, version.number)
    gate = version.gate
    return TrialMeasurements(
        score=stored_result.folder.document.score,
        passed=gate["passed"],
        held=None if gate["passed"] else wording.explain_failed_gate_checks(gate),
        accuracy={str(task): [cell.correct, cell.total] for task, cell in sorted(row.items())},
        acc=figures.acc,
        forgetting=figures.forgetting,
        # JSON has no infinity.
        forecast=rise if rise is not None and math.isfinite(rise) else None,
        bytes=size,
        images=_count_images_in_memory(stored_result),
    )


def _count_images_in_memory(stored_result: StoredJobResult) -> int:
    """Count the training images in a version's replay memory.

    The first part of a type lists them; the others are packs of their pixels.
    """
    # Reversed, so that the first part of each type is the one that remains in the dict.
    first = {part.file.type: part.file.path for part in reversed(stored_result.parts)}
    counts = [
        tensor.shape[0]
        for kind, path in first.items()
        if kind in IMAGE_TYPES
        for tensor in read_safetensors_header(path)
        if tensor.name == "labels"
    ]
    return sum(counts)
