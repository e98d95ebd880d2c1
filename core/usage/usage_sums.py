"""Usage of models and owners in rows and bytes, summed up by the database.

Each blob counts once per model. The sums of an owner take as long as the owner has rows. They are
therefore stored in `Owner.usage` with their time, and workers measure them again, owner after
owner.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from core.contract.usage import ModelBytes, ModelUsageCounts, OwnerUsageSums, StoredOwnerUsage
from core.database.session import Database
from core.database.tables import (
    Edit,
    ExportedDownload,
    Job,
    Model,
    Owner,
    Task,
    TaskFileBeforeEdit,
    TrialFile,
    Upload,
    UploadedBase,
    Version,
    VersionPart,
    VersionTaskResult,
)

FRESH_S = 60.0
"""Age in seconds above which the figures of an owner are measured again."""
BUDGET_S = 2.0
"""Seconds after which a round of measuring begins no other owner."""
_IN_BYTES = ("traces", "features")
"""Files of tasks whose size is stored; the size of others is computed from their images."""
_NO_BYTES: ModelBytes = {"versions": 0, "archives": 0, "datasets": 0, "exports": 0}
_Rows = Callable[..., Iterator[Any]]
"""Runs a grouped query; each row has a model's id and figures of the model."""


def sum_usage_by_model(session: Session, which: ColumnElement[bool]) -> dict[str, ModelUsageCounts]:
    """Compute the storage usage of models: `tasks`, `versions`, `jobs` (by state) and `bytes`, by
    model id.

    Among the bytes, `versions` counts parts and totals; `archives`, archives that wait to be
    decoded or checked; `datasets`, retained pixels with their features and predictions, and results
    of trials; and `exports`, downloads.
    """
    model_ids = select(Model.id).where(which)
    counts_by_model: dict[str, ModelUsageCounts] = {}
    pixels: dict[str, int] = {}
    for model_id, image, totals in session.execute(
        select(Model.id, Model.image, Model.totals_bytes).where(which)
    ):
        size: ModelBytes = {**_NO_BYTES, "versions": totals or 0}
        counts_by_model[model_id] = {"tasks": 0, "versions": 0, "jobs": {}, "bytes": size}
        pixels[model_id] = int(image["size"]) ** 2 * int(image["channels"])

    def fetch_grouped_sums(query: Select[*tuple[Any, ...]], *groups: Any) -> Iterator[Any]:
        for row in session.execute(query.group_by(*groups)):
            if row[0] in counts_by_model:  # a model may have been added since
                yield row

    _add_task_version_job_counts_by_model(counts_by_model, model_ids, fetch_grouped_sums)
    _add_archive_and_dataset_bytes_by_model(counts_by_model, model_ids, fetch_grouped_sums, pixels)
    _add_part_and_export_bytes_by_model(counts_by_model, model_ids, fetch_grouped_sums)
    return counts_by_model


def _add_task_version_job_counts_by_model(
    counts_by_model: dict[str, ModelUsageCounts], model_ids: Select[str], fetch_grouped_sums: _Rows
) -> None:
    """Count tasks, versions and jobs of models."""
    tasks = select(Task.model_id, func.count()).where(Task.model_id.in_(model_ids))
    for model_id, count in fetch_grouped_sums(tasks, Task.model_id):
        counts_by_model[model_id]["tasks"] = count
    versions = select(Version.model_id, func.count()).where(Version.model_id.in_(model_ids))
    for model_id, count in fetch_grouped_sums(versions, Version.model_id):
        counts_by_model[model_id]["versions"] = count
    jobs = select(Job.model_id, Job.state, func.count()).where(Job.model_id.in_(model_ids))
    for model_id, state, count in fetch_grouped_sums(jobs, Job.model_id, Job.state):
        counts_by_model[model_id]["jobs"][state] = count


def _add_archive_and_dataset_bytes_by_model(
    counts_by_model: dict[str, ModelUsageCounts],
    model_ids: Select[str],
    fetch_grouped_sums: _Rows,
    pixels: Mapping[str, int],
) -> None:
    """Sum up the bytes of models' archives and datasets.

    Args:
        pixels: bytes of an image of each model.
    """
    job_archives = select(Job.model_id, func.sum(Job.archive_bytes)).where(
        Job.model_id.in_(model_ids), Job.archive_key.is_not(None)
    )
    for model_id, total in fetch_grouped_sums(job_archives, Job.model_id):
        counts_by_model[model_id]["bytes"]["archives"] = int(total or 0)

    # Each sum of bytes uses an index of its own.
    files: dict[str, tuple[InstrumentedAttribute[Any], ColumnElement[bool]]] = {
        "archives": (Task.bytes, Task.archive_key.is_not(None)),
        "train": (Task.n_train, Task.train_sha256.is_not(None) & Task.train_deleted_at.is_(None)),
        "held_out": (
            Task.n_held_out,
            Task.held_out_sha256.is_not(None) & Task.held_out_deleted_at.is_(None),
        ),
        "selection": (
            Task.n_selection,
            Task.selection_sha256.is_not(None) & Task.held_out_deleted_at.is_(None),
        ),
        "traces": (
            Task.traces_bytes,
            Task.traces_sha256.is_not(None) & Task.held_out_deleted_at.is_(None),
        ),
        "features": (
            Task.features_bytes,
            Task.features_sha256.is_not(None) & Task.held_out_deleted_at.is_(None),
        ),
    }
    for kind, (column, is_retained) in files.items():
        of_tasks = select(Task.model_id, func.sum(column)).where(
            Task.model_id.in_(model_ids), is_retained
        )
        for model_id, total in fetch_grouped_sums(of_tasks, Task.model_id):
            size = counts_by_model[model_id]["bytes"]
            if kind == "archives":
                size["archives"] += int(total)
            else:
                size["datasets"] += int(total or 0) * (1 if kind in _IN_BYTES else pixels[model_id])
    before_edits = (
        select(Edit.model_id, func.sum(TaskFileBeforeEdit.bytes))
        .join(TaskFileBeforeEdit, TaskFileBeforeEdit.edit_id == Edit.id)
        .where(Edit.model_id.in_(model_ids))
    )
    for model_id, total in fetch_grouped_sums(before_edits, Edit.model_id):
        counts_by_model[model_id]["bytes"]["datasets"] += int(total or 0)
    of_trials = (
        select(Job.model_id, func.sum(TrialFile.bytes))
        .join(TrialFile, TrialFile.job_id == Job.id)
        .where(Job.model_id.in_(model_ids))
    )
    for model_id, total in fetch_grouped_sums(of_trials, Job.model_id):
        counts_by_model[model_id]["bytes"]["datasets"] += int(total or 0)


def _add_part_and_export_bytes_by_model(
    counts_by_model: dict[str, ModelUsageCounts], model_ids: Select[str], fetch_grouped_sums: _Rows
) -> None:
    """Sum up the bytes of versions' parts, of downloads, and of predictions on held-out images."""
    # Versions share unchanged parts, so each blob of a model counts once.
    blobs = (
        select(Version.model_id, VersionPart.sha256, func.max(VersionPart.bytes).label("bytes"))
        .join(Version, Version.id == VersionPart.version_id)
        .where(Version.model_id.in_(model_ids), VersionPart.deleted_at.is_(None))
        .group_by(Version.model_id, VersionPart.sha256)
        .subquery()
    )
    exports = (
        select(Version.model_id, ExportedDownload.bytes)
        .join(Version, Version.id == ExportedDownload.version_id)
        .where(Version.model_id.in_(model_ids))
        .subquery()
    )
    predictions = (
        select(VersionTaskResult.model_id, func.max(VersionTaskResult.answers_bytes).label("bytes"))
        .where(VersionTaskResult.model_id.in_(model_ids), VersionTaskResult.answers.is_not(None))
        .group_by(VersionTaskResult.model_id, VersionTaskResult.answers)
        .subquery()
    )
    for model_id, total in fetch_grouped_sums(
        select(predictions.c.model_id, func.sum(predictions.c.bytes)), predictions.c.model_id
    ):
        counts_by_model[model_id]["bytes"]["datasets"] += int(total)
    for model_id, total in fetch_grouped_sums(
        select(blobs.c.model_id, func.sum(blobs.c.bytes)), blobs.c.model_id
    ):
        counts_by_model[model_id]["bytes"]["versions"] += int(total)
    for model_id, total in fetch_grouped_sums(
        select(exports.c.model_id, func.sum(exports.c.bytes)), exports.c.model_id
    ):
        counts_by_model[model_id]["bytes"]["exports"] = int(total)


def sum_owner_usage(session: Session, owner_id: str) -> OwnerUsageSums:
    """Compute an owner's storage usage: sums over models, bases and uploads.

    Deleted models count until their files are swept.
    """
    mine = Model.owner_id == owner_id
    models = list(sum_usage_by_model(session, mine).values())
    jobs: dict[str, int] = {}
    for one in models:
        for state, count in one["jobs"].items():
            jobs[state] = jobs.get(state, 0) + count
    # Bases of the same bytes are one blob, which counts once.
    bases = (
        select(UploadedBase.sha256, func.max(UploadedBase.bytes).label("bytes"))
        .where(UploadedBase.owner_id == owner_id)
        .group_by(UploadedBase.sha256)
        .subquery()
    )
    uploaded_bytes = select(func.sum(Upload.offset)).where(Upload.owner_id == owner_id)
    existing = select(func.count()).where(mine, Model.deleted_at.is_(None))
    return {
        "models": session.scalar(existing) or 0,
        "tasks": sum(one["tasks"] for one in models),
        "versions": sum(one["versions"] for one in models),
        "jobs": jobs,
        "bytes": {
            "versions": sum(one["bytes"]["versions"] for one in models),
            "archives": sum(one["bytes"]["archives"] for one in models),
            "datasets": sum(one["bytes"]["datasets"] for one in models),
            "exports": sum(one["bytes"]["exports"] for one in models),
            "bases": int(session.scalar(select(func.sum(bases.c.bytes))) or 0),
            "uploads": int(session.scalar(uploaded_bytes) or 0),
        },
    }


def measure_and_store_owner_usage(
    db: Database, owner_id: str, expected_usage_at: float | None = None
) -> StoredOwnerUsage:
    """Compute an owner's storage usage and store it in the owner's row.

    `at` is the time of the sum by the database's clock.

    Args:
        expected_usage_at: store only while `Owner.usage_at` has this value; None: only while there are no sums.
    """
    with db.read() as session:
        usage: StoredOwnerUsage = {"at": db.now(session), **sum_owner_usage(session, owner_id)}
    # A transaction of its own, since the sum takes long and SQLite has one writer at a time.
    with db.write() as session:
        mine = (
            Owner.usage.is_(None)
            if expected_usage_at is None
            else Owner.usage_at == expected_usage_at
        )
        session.execute(update(Owner).where(Owner.id == owner_id, mine).values(usage=usage))
    return usage


def measure_and_store_usage_of_outdated_owners(db: Database) -> None:
    """Measure the storage usage of owners not measured for `FRESH_S`, the oldest first, for about
    `BUDGET_S`.
    """
    started_at = time.monotonic()
    with db.read() as session:
        old = or_(Owner.usage_at.is_(None), Owner.usage_at < db.now(session) - FRESH_S)
        query = select(Owner.id, Owner.usage_at).where(old)
        # Databases sort NULL differently, and owners that were never measured come first.
        due = session.execute(query.order_by(Owner.usage_at.is_not(None), Owner.usage_at)).all()
    for owner_id, at in due:
        if time.monotonic() - started_at > BUDGET_S:
            return
        mine = _mark_owner_being_measured(db, owner_id, at)
        if mine is not None:
            measure_and_store_owner_usage(db, owner_id, mine)


def _mark_owner_being_measured(db: Database, owner_id: str, at: float | None) -> float | None:
    """Mark that an owner's usage is being measured, and return the time of the mark.

    Return None if another worker was first.
    """
    with db.write() as session:
        now = db.now(session)
        same = Owner.usage_at.is_(None) if at is None else Owner.usage_at == at
        result: Any = session.execute(
            update(Owner).where(Owner.id == owner_id, same).values(usage_at=now)
        )
        return now if result.rowcount else None
