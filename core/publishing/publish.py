"""Publishing: a finished job becomes a version.

Blobs are stored first, then one transaction follows. Parts are stored under their digest before the
transaction, so a crash until then leaves only blobs that the sweep removes. The transaction checks
the fence and writes everything at once: version, parts, measurements, gate verdict, its effect on
the lineage (`core.lineage`), event, audit row, and the end of the job. A retry afterwards finds the
job's version and returns its number. Version numbers come from the same transaction, so no number
is skipped.
"""

from pathlib import Path

from sqlalchemy import select

from core.contract.edit import EditResult
from core.contract.responses.event import StateData
from core.database import job_log, owner_events
from core.database.jobs import change_job_state
from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import JobAction
from core.database.tables import Model, Task, Version
from core.execution import snapshots
from core.execution.feature_totals import record_feature_totals
from core.execution.parent_parts import list_parts_needed_to_continue
from core.failpoints import hit_failpoint
from core.jobs.fence import JobClaim
from core.lineage import lineage, wording
from core.lineage.class_numbers import read_ancestor_class_number_maps
from core.publishing import anytime, negative_flips
from core.publishing.measurement import JobVersionStatus, store_measurement_and_end_job
from core.publishing.negative_flips import ProductionComparison
from core.publishing.version_rows import (
    PublishingTransaction,
    StoredJobResult,
    add_and_judge_version,
    delete_unused_files_of_result,
    restore_blobs_and_lock_publishing_rows,
    store_job_result_files,
)
from core.publishing.version_warnings import (
    VersionWarningFacts,
    collect_version_warnings_and_record_advice,
    describe_tasks_missing_in_version,
)
from core.retention import retention
from core.retention.damage import DatabaseDamageMarks
from core.retention.retained_predictions import clear_prediction_digests_and_keys
from core.storage import Blobs, ObjectStorage
from core.usage import stored_bytes


def publish_or_hold_job_result(
    db: Database, store: ObjectStorage, claim: JobClaim, result: Path, cache: Path | None = None
) -> JobVersionStatus:
    """Make a version from a claimed job's result: published, or held if it fails its gate.

    Repeating the call changes nothing.

    Args:
        result: folder of the result.
        cache: the worker's folder for copies of stored blobs; None for one that is deleted with the
            result.

    Raises:
        LeaseLost: the job belongs to another claim; nothing was published.
        WrongState: a stop was requested meanwhile; nothing was published. The caller calls
            `claim.explain_stopped_lineage`.
        ValueError: the result is incomplete, which is a fault of the learning code.
    """
    if claim.kind == JobKind.MEASURE:
        return store_measurement_and_end_job(db, store, claim, result, cache)
    # An earlier call may have committed without its caller learning of it, as in an outage.
    done = _find_version_made_by_job(db, claim)
    if done is None:
        blobs = Blobs(store, cache or result / "cache", marks=DatabaseDamageMarks(db))
        stored_result = store_job_result_files(db, blobs, claim, result)
        # Read before the transaction replaces them: afterwards, no row names their blob.
        former = _find_digests_of_files_to_be_replaced(db, claim, stored_result.edit)
        hit_failpoint("publish-stored")
        while done is None:  # None: production moved while the versions were compared
            done = _publish_or_hold_in_transaction(
                db,
                blobs,
                claim,
                stored_result,
                negative_flips.compare_version_with_production(
                    db, blobs, claim, stored_result.folder
                ),
            )
        hit_failpoint("publish-committed")
        delete_unused_files_of_result(db, blobs, stored_result, former)
    _delete_states_and_unneeded_task_blobs(db, store, claim)
    hit_failpoint("publish-cleaned")
    return done


def _find_version_made_by_job(db: Database, claim: JobClaim) -> JobVersionStatus | None:
    """Return the version that the job has already made, or None."""
    with db.read() as session:
        query = select(Version.number, Version.status).where(Version.job_id == claim.job_id)
        row = session.execute(query).one_or_none()
    return None if row is None else JobVersionStatus(*row)


def _publish_or_hold_in_transaction(
    db: Database,
    blobs: Blobs,
    claim: JobClaim,
    stored_result: StoredJobResult,
    comparison: ProductionComparison,
) -> JobVersionStatus | None:
    """Make a version of a job's result, published or held, and end the job, in one transaction.

    Return None, without any change, if production is not the compared version.
    """
    document = stored_result.folder.document
    with db.write() as session:
        publishing = restore_blobs_and_lock_publishing_rows(
            db, session, blobs, claim, stored_result
        )
        model, task, job, now = (
            *(publishing.model, publishing.task),
            *(publishing.job, publishing.now),
        )
        # The gate compares with production: counts against a replaced version are void.
        if (
            negative_flips.find_production_version_number(session, model.id)
            != comparison.production
        ):
            return None
        version, size = add_and_judge_version(publishing, stored_result, comparison)
        findings = VersionWarningFacts(document, comparison, stored_result.confused)
        warned = collect_version_warnings_and_record_advice(session, model, job, version, findings)
        version.warnings = [*describe_tasks_missing_in_version(session, model, version), *warned]
        job.warnings = [*(job.warnings or []), *warned]
        if version.gate["passed"]:
            if stored_result.totals is not None:  # the next job continues this version
                size += record_feature_totals(
                    model,
                    stored_result.totals,
                    list_parts_needed_to_continue(session, version),
                    read_ancestor_class_number_maps(session, version),
                )
            lineage.publish_version(session, model, task, version, now)
        else:
            lineage.stop_lineage_or_skip_held_task(session, model, task, now)
            owner_events.collect_owner_and_webhook_events_of_version(session, model, version, now)
        _end_job_that_made_version(publishing, version, [*document.warnings, *warned])
        session.flush()
        # The standing of this task has changed, which may let an older held version pass.
        lineage.rejudge_and_publish_held_versions(session, model, now)
        retention.mark_unneeded_task_files(
            model, task, published=version.status == "published", now=now
        )
        session.flush()
        # Predictions live as long as the held-out images, which may be deleted just now.
        if task.held_out_deleted_at is not None:
            clear_prediction_digests_and_keys(session, model.id, task.number)
        # Last, since it locks the owner's row, which the owner's requests and claims need too.
        stored_bytes.add_stored_bytes(session, job.owner_id, size)
        hit_failpoint("publish-uncommitted")
        return JobVersionStatus(version.number, version.status)


def _end_job_that_made_version(
    publishing: PublishingTransaction, version: Version, warnings: list[str]
) -> None:
    """End a job whose version was made: its state, its log lines, and the audit row."""
    session, now = publishing.session, publishing.now
    model, task, job = publishing.model, publishing.task, publishing.job
    for text in version.warnings:  # the job process has logged its own warnings
        job_log.add_job_log_line(session, job.id, ("warning", text), now)
    production = negative_flips.find_production_version_number(session, model.id)
    job_log.add_job_log_line(
        session, job.id, _format_made_version_log_line(model, task, version, production), now
    )
    session.flush()  # event streams end with the event of the state, so the log lines come first
    data: StateData = {"version": version.number, "outcome": version.status, "warnings": warnings}
    change_job_state(session, job, JobAction.PUBLISH, now, data)
    job.version = version.number
    job.error = None
    # From here on they are garbage: their files are removed after the commit, or by a sweep.
    job.snapshot = job.anytime = None
    task.warnings = [*task.warnings, *(text for text in warnings if text not in task.warnings)]
    lineage.record_publication_in_audit(session, model, version, now, job=job.id)


def _format_made_version_log_line(
    model: Model, task: Task, version: Version, production: int | None
) -> job_log.Line:
    """Return the log line about the version that a job has made."""
    if version.status == "published":
        if version.number == production:
            return (
                "info",
                f"Version {version.number} is published and in "
                f"production.{_format_detectable_losses(version)}",
            )
        if model.production_follows:
            return (
                "info",
                f"Version {version.number} is published and not in production: it knows one class.",
            )
        text = (
            "is published and not in production, which stays where a person put it: see the "
            "model's `warnings`."
        )
        return "info", f"Version {version.number} {text}"
    stops = f"{wording.explain_stopped_lineage(model, task, version)} {wording.SETTLED_BY}"
    next_ = (
        stops
        if task.stops
        else wording.describe_lineage_past_held_version(model, task, task.standing == "learned")
    )
    return "warning", f"{wording.explain_held_version(version.number, version.gate)} {next_}"


def _format_detectable_losses(version: Version) -> str:
    """Return the gate's statement on which losses its images can reveal, as a sentence to append."""
    visible = version.gate.get("visible")
    return "" if visible is None else f" {visible['detail']}"


def _find_digests_of_files_to_be_replaced(
    db: Database, claim: JobClaim, edit: EditResult | None
) -> set[str]:
    """Return digests of files that publishing may replace: totals, and features of edited tasks'
    images.
    """
    edited = [] if edit is None else [task.number for task in edit.before]
    with db.read() as session:
        digests = [
            session.scalar(select(Model.totals_sha256).where(Model.id == claim.model_id)),
            *session.scalars(
                select(Task.features_sha256).where(
                    Task.model_id == claim.model_id, Task.number.in_(edited)
                )
            ),
        ]
    return {digest for digest in digests if digest is not None}


def _delete_states_and_unneeded_task_blobs(
    db: Database, store: ObjectStorage, claim: JobClaim
) -> None:
    """Delete a published job's snapshots and best states; if this fails, the periodic sweep repeats
    it.
    """
    for prefix in (
        snapshots.build_snapshot_key_prefix(claim.job_id),
        anytime.build_best_state_key_prefix(claim.job_id),
    ):
        # Listed to the end first, since deletions could disturb the listing.
        for info in list(store.list(prefix)):
            store.delete(info.key)
    assert claim.task_id is not None, "the job learned a task"
    # Copies in a machine's cache are left to the sweep, so no folder is needed.
    retention.delete_blobs_of_deleted_task_files(db, Blobs(store, Path()), claim.task_id)
