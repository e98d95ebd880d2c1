"""Publishing: a finished job becomes a version.

Blobs are stored first, then one transaction follows. Parts are stored under their digest before the
transaction, so a crash until then leaves only blobs that the sweep removes. The transaction checks
the fence and writes everything at once: version, parts, measurements, gate verdict, its effect on
the lineage (`core.lineage`), event, audit row, and the end of the job. A retry afterwards finds the
job's version and returns its number. Version numbers come from the same transaction, so no number
is skipped.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.edit import EditResult
from core.contract.jobs.job_result import JobResult
from core.contract.manifest import StoredPart
from core.contract.responses.event import StateData
from core.database import job_log, measurements, owner_events
from core.database.jobs import change_state
from core.database.kinds import Kind
from core.database.measurements import remove_figures
from core.database.session import Database
from core.database.states import Action, find_next_state
from core.database.tables import Job, Model, Part, Task, Version
from core.edits import record
from core.errors import Unavailable
from core.execution import snapshots
from core.execution.held_out_features import (
    BACKBONE,
    StoredFeatures,
    store_features,
    write_features,
)
from core.execution.parent_parts import read_parts
from core.execution.result import PartFile, ResultFolder, read_result
from core.execution.totals import StoredTotals, store_totals, write_totals
from core.failpoints import hit_failpoint
from core.ids import new_id
from core.jobs.fence import Claim, lock_claimed_job
from core.lineage import lineage, words
from core.lineage.coverage import add_taught_task
from core.lineage.judgement import judge_version
from core.publishing import answers, anytime, negative_flips
from core.publishing.answers import Sealed
from core.publishing.confused_pairs import ConfusedPair, count_confused_pairs
from core.publishing.manifest import JobRows, build_manifest
from core.publishing.measured import Measurements, write_measured
from core.publishing.measurement import Published, publish_measurement
from core.publishing.negative_flips import ProductionComparison
from core.publishing.version_warnings import Findings, describe_lacked_tasks, find_warnings
from core.retention import references, retention
from core.retention.answers import remove_predictions
from core.retention.damage import Marks
from core.storage import Blobs, Store
from core.usage import stored_bytes


@dataclass(frozen=True)
class _Stored:
    """A stored part: its local file, digest and size in bytes."""

    file: PartFile
    sha256: str
    bytes: int

    def to_stored_part(self) -> StoredPart:
        """Return the part as the manifest lists it."""
        return StoredPart(
            name=self.file.name, type=self.file.type, sha256=self.sha256, bytes=self.bytes
        )


@dataclass(frozen=True)
class _Made:
    """A result whose files are stored.

    Attributes:
        folder: the result.
        parts: stored parts.
        predictions: new predictions.
        features: features of held-out images by task.
        totals: sums over all tasks, if the method has any.
        confused: pairs of classes that the version confuses.
        edit: what an edit changes besides; None for a batch.
    """

    folder: ResultFolder[JobResult]
    parts: list[_Stored]
    predictions: Sealed
    features: dict[int, StoredFeatures]
    totals: StoredTotals | None
    confused: list[ConfusedPair]
    edit: EditResult | None = None


@dataclass(frozen=True)
class _Publishing:
    """The publishing transaction: its session, the rows that it has locked, and its time."""

    session: Session
    model: Model
    task: Task
    job: Job
    now: float


def publish_result(
    db: Database, store: Store, claim: Claim, result: Path, cache: Path | None = None
) -> Published:
    """Make a version from the result folder of a claimed job: published, or held by its gate.

    Repeating the call changes nothing.

    Args:
        result: folder of the result.
        cache: the worker's folder for copies of stored blobs; None for one that is deleted with the
            result.

    Raises:
        LeaseLost: the job belongs to another claim; nothing was published.
        WrongState: a stop was requested meanwhile; nothing was published. The caller calls
            `claim.explain_stop`.
        ValueError: the result is incomplete, which is a fault of the learning code.
    """
    if claim.kind == Kind.MEASURE:
        return publish_measurement(db, store, claim, result, cache)
    # An earlier call may have committed without its caller learning of it, as in an outage.
    done = _find_published(db, claim)
    if done is None:
        result_folder = read_result(result)
        blobs = Blobs(store, cache or result / "cache", marks=Marks(db))
        stored = []
        for file in result_folder.parts:
            # With the link, this machine need not download the parts for the next task.
            stored.append(_Stored(file, *blobs.put_file(file.path, link=True)))
            hit_failpoint("part-stored")
        sealed, features = (
            answers.store_predictions(
                db, blobs, claim, result_folder.folder, result_folder.document.answers
            ),
            store_features(blobs, result_folder),
        )
        totals = store_totals(blobs, result_folder)
        made = _Made(
            result_folder,
            stored,
            sealed,
            features,
            totals,
            count_confused_pairs(result_folder),
            record.read_edit_result(result),
        )
        # Read before the transaction replaces them: afterwards, no row names their blob.
        former = _find_former_digests(db, claim, made.edit)
        hit_failpoint("publish-stored")
        while done is None:  # None: production moved while the versions were compared
            done = _try_publish(
                db,
                blobs,
                claim,
                made,
                negative_flips.compare_with_production(db, blobs, claim, result_folder),
            )
        hit_failpoint("publish-committed")
        _delete_unnamed_objects(db, blobs, made, former)
    _clean_up(db, store, claim)
    hit_failpoint("publish-cleaned")
    return done


def _find_published(db: Database, claim: Claim) -> Published | None:
    """Return the version that the job has made already, or None."""
    with db.read() as session:
        query = select(Version.number, Version.status).where(Version.job_id == claim.job_id)
        row = session.execute(query).one_or_none()
    return None if row is None else Published(*row)


def _try_publish(
    db: Database, blobs: Blobs, claim: Claim, made: _Made, comparison: ProductionComparison
) -> Published | None:
    """Publish a job's result in one transaction.

    Return None, without any change, if production is not the compared version.
    """
    document = made.folder.document
    with db.write() as session:
        # Until the transaction ends, no sweep deletes a blob that it is about to name.
        references.lock_references_shared(session)
        _store_deleted_again(session, blobs, made)
        job = lock_claimed_job(session, claim)
        find_next_state(job.state, Action.PUBLISH)  # raises at once if a stop was requested
        model = lineage.lock_model(session, job.model_id)
        # The gate compares with production: counts against a replaced version are void.
        if negative_flips.find_production_number(session, model.id) != comparison.production:
            return None
        task = session.get_one(Task, job.task_id, with_for_update=True, populate_existing=True)
        now = db.now(session)
        publishing = _Publishing(session, model, task, job, now)
        edited_bytes = 0
        if made.edit is not None:
            edited_bytes = record.record_edit(
                session, model, job, made.edit, model.next_version, now
            )
        version = _add_version(publishing, document, made.parts, made.edit)
        size = (
            edited_bytes
            + version.bytes_new
            + _store_measurements(session, model, version, made, comparison)
        )
        version.gate = judge_version(session, model, version)
        findings = Findings(document, comparison, made.confused)
        warned = find_warnings(session, model, job, version, findings)
        version.warnings = [*describe_lacked_tasks(session, model, version), *warned]
        job.warnings = [*(job.warnings or []), *warned]
        if version.gate["passed"]:
            if made.totals is not None:  # the next job continues this version
                size += write_totals(model, made.totals, read_parts(session, version))
            lineage.publish_version(session, model, task, version, now)
        else:
            lineage.record_hold(session, model, task, now)
            owner_events.record_version_event(session, model, version, now)
        _end_job(publishing, version, [*document.warnings, *warned])
        session.flush()
        # The standing of this task has changed, which may let an older held version pass.
        lineage.judge_held_versions(session, model, now)
        retention.mark_unneeded_files(model, task, published=version.status == "published", now=now)
        session.flush()
        # Predictions live as long as the held-out images, which may be deleted just now.
        if task.held_out_deleted_at is not None:
            remove_predictions(session, model.id, task.number)
        # Last, since it locks the owner's row, which the owner's requests and claims need too.
        stored_bytes.add_stored_bytes(session, job.owner_id, size)
        hit_failpoint("publish-uncommitted")
        return Published(version.number, version.status)


def _store_deleted_again(session: Session, blobs: Blobs, made: _Made) -> None:
    """Store again what was deleted as unused meanwhile; the caller holds the lock on references.

    Objects that another row refers to are not deleted meanwhile. The store is asked for the others
    before any row is locked, since a slow store would keep heartbeats and requests waiting.
    """
    files = {part.sha256: part.file.path for part in made.parts}
    files |= {features.sha256: features.path for features in made.features.values()}
    if made.totals is not None:
        files[made.totals.sha256] = made.totals.path
    if made.predictions.blob is not None:
        files[made.predictions.blob.sha256] = made.predictions.path
    for sha256 in sorted(set(files) - references.find_used_digests(session, list(files))):
        # A sweep may have deleted a blob between its upload and the lock.
        if not blobs.has(sha256):
            blobs.put_file(files[sha256])
    edited = [] if made.edit is None else record.list_new_digests(made.edit)
    for sha256 in sorted(set(edited) - references.find_used_digests(session, edited)):
        if not blobs.has(sha256):
            raise Unavailable("A file of the edit was removed before anything named it.")


def _store_measurements(
    session: Session, model: Model, version: Version, made: _Made, comparison: ProductionComparison
) -> int:
    """Store measurements, predictions and comparisons.

    Return the added bytes of predictions and features.
    """
    document = made.folder.document
    cells = answers.filter_retained(session, model, made.predictions.cells)
    size = answers.count_new_bytes(session, model, cells)
    measured = Measurements(document.results, document, cells)
    write_measured(session, model, version, measured, _find_deleted_tasks(session, model))
    answers.store_object_keys(session, model, made.predictions, cells)
    backbone = [(part.file.name, part.sha256) for part in made.parts if part.file.type == BACKBONE]
    size += write_features(session, model, backbone, made.features)
    answers.fill_parent_cells(session, model, version.parent or 0, cells, document)
    measurements.insert_measurement_rows(session, model.id, version.number, comparison.build_rows())
    return size


def _end_job(publishing: _Publishing, version: Version, warnings: list[str]) -> None:
    """End the job: its state, its log lines, and the audit row."""
    session, now = publishing.session, publishing.now
    model, task, job = publishing.model, publishing.task, publishing.job
    for text in version.warnings:  # the job process has logged its own warnings
        job_log.add_log_line(session, job.id, ("warning", text), now)
    production = negative_flips.find_production_number(session, model.id)
    job_log.add_log_line(session, job.id, _format_outcome(model, task, version, production), now)
    session.flush()  # event streams end with the event of the state, so the log lines come first
    data: StateData = {"version": version.number, "outcome": version.status, "warnings": warnings}
    change_state(session, job, Action.PUBLISH, now, data)
    job.version = version.number
    job.error = None
    # From here on they are garbage: their files are removed after the commit, or by a sweep.
    job.snapshot = job.anytime = None
    task.warnings = [*task.warnings, *(text for text in warnings if text not in task.warnings)]
    lineage.record_publish(session, model, version, now, job=job.id)


def _format_outcome(
    model: Model, task: Task, version: Version, production: int | None
) -> job_log.Line:
    """Return the log line about the outcome of the job."""
    if version.status == "published":
        if version.number == production:
            return (
                "info",
                f"Version {version.number} is published and in "
                f"production.{_format_visible_losses(version)}",
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
    stops = f"{words.explain_stop(model, task, version)} {words.SETTLED_BY}"
    next_ = (
        stops
        if task.stops
        else words.describe_continuation(model, task, task.standing == "learned")
    )
    return "warning", f"{words.explain_hold(version.number, version.gate)} {next_}"


def _format_visible_losses(version: Version) -> str:
    """Return the gate's statement about visible losses, as a sentence to append."""
    visible = version.gate.get("visible")
    return "" if visible is None else f" {visible['detail']}"


def _find_deleted_tasks(session: Session, model: Model) -> set[int]:
    """Return the tasks whose data was deleted, perhaps while the job ran.

    Nothing new is stored of them.
    """
    query = select(Task.number).where(Task.model_id == model.id, Task.data_deleted_at.is_not(None))
    return set(session.execute(query).scalars())


def _add_version(
    publishing: _Publishing, result: JobResult, stored: list[_Stored], edit: EditResult | None
) -> Version:
    """Add the next version and its parts; its status is held until it is judged."""
    session, model = publishing.session, publishing.model
    task, job = publishing.task, publishing.job
    # Taken in the publishing transaction: one that fails leaves no gap.
    number = model.next_version
    model.next_version = number + 1
    start = (job.parent_version or 0) if edit is None else edit.parent
    parent = lineage.find_numbered_version(session, model, start)
    base = lineage.find_numbered_version(session, model, 0)
    assert parent is not None and base is not None, "a job starts from a version of its model"
    described = [part.to_stored_part() for part in stored]
    tasks = add_taught_task(parent.manifest, task.number) if edit is None else edit.taught
    content = build_manifest(
        JobRows(model, task, job, base), result, described, number, tasks, start
    )
    # By digest, since parts with the same bytes are one blob.
    sizes = {part.sha256: part.bytes for part in stored}
    existing = _find_known_digests(session, model, sizes)
    version = Version(
        id=new_id("ver"),
        model_id=model.id,
        number=number,
        parent=start,
        task_number=task.number,
        job_id=job.id,
        status="held",
        gate={"passed": False, "checks": []},
        created_at=publishing.now,
        # Figures are rows of their own (`_store_measurements`), and would be stored twice.
        manifest=remove_figures(content),
        bytes=sum(part.bytes for part in stored),
        bytes_new=sum(size for sha256, size in sizes.items() if sha256 not in existing),
    )
    session.add(version)
    session.flush()  # before the rows that refer to it
    for position, part in enumerate(stored):
        session.add(
            Part(
                version_id=version.id,
                name=part.file.name,
                position=position,
                type=part.file.type,
                sha256=part.sha256,
                bytes=part.bytes,
            )
        )
    return version


def _find_known_digests(session: Session, model: Model, digests: Collection[str]) -> set[str]:
    """Return those digests that a version of the model has already."""
    of_model = (
        select(Part.sha256)
        .join(Version, Version.id == Part.version_id)
        .where(
            Version.model_id == model.id,
            references.avoid_digest_index(Part.sha256).in_(digests),
            Part.deleted_at.is_(None),
        )
    )
    return set(session.execute(of_model).scalars())


def _find_former_digests(db: Database, claim: Claim, edit: EditResult | None) -> set[str]:
    """Return the digests of files that this publish may replace: totals, and features of the
    held-out images of edited tasks."""
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


def _delete_unnamed_objects(db: Database, blobs: Blobs, made: _Made, former: set[str]) -> None:
    """Delete stored objects without a row: predictions and features of deleted images, totals.

    Args:
        former: files that were replaced.
    """
    stored = former | {features.sha256 for features in made.features.values()}
    stored |= set() if made.edit is None else record.list_former_digests(made.edit)
    stored |= {of.sha256 for of in (made.predictions.blob, made.totals) if of is not None}
    with db.read() as session:
        unused = sorted(stored - references.find_used_digests(session, sorted(stored)))
    retention.delete_unused_blobs(db, blobs, unused)


def _clean_up(db: Database, store: Store, claim: Claim) -> None:
    """Remove what the published job no longer needs; if this fails, the sweep repeats it."""
    for prefix in (
        snapshots.build_snapshot_prefix(claim.job_id),
        anytime.build_anytime_prefix(claim.job_id),
    ):
        # Listed to the end first, since deletions could disturb the listing.
        for info in list(store.list(prefix)):
            store.delete(info.key)
    assert claim.task_id is not None, "the job learned a task"
    # Copies in a machine's cache are left to the sweep, so no folder is needed.
    retention.delete_task_blobs(db, Blobs(store, Path()), claim.task_id)
