"""First half of a job: turn the uploaded archive into a checked dataset.

Decoding runs in separate processes (`core.ingest`). Its output is stored under its digest first;
then one transaction names it. A crash before that leaves only blobs that the sweep removes, and a
crash after it finds the dataset there. The raw archive is deleted once its dataset is committed.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.base import ModelBase
from core.contract.jobs.trial import SELECTION_SHARE
from core.contract.reports.report import BatchReport
from core.database import job_log
from core.database.jobs import change_job_state
from core.database.session import Database
from core.database.states import JobAction
from core.database.tables import Job, Model, Task
from core.edits.listing import delete_reused_class_aliases, read_class_aliases
from core.errors import (
    ArchiveHostile,
    ArchiveInvalid,
    ArchiveTooLarge,
    LabelsInvalid,
    Rejected,
)
from core.execution import batch_log
from core.execution.batch_comparison import add_earlier_task_duplicates_to_report
from core.failpoints import hit_failpoint
from core.ingest.decoding.decoder import SMALL_SIDE
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.findings.contradictions import refuse_unaccepted_label_contradictions
from core.ingest.first_report import keep_submission_fields_in_decoded_report
from core.ingest.ingest import (
    DecodingCallbacks,
    IngestedBatch,
    IngestOptions,
    decode_archive_to_datasets,
)
from core.ingest.layout import FormerNames, parse_stored_reading_options
from core.ingest.limits import ArchiveLimits
from core.jobs.fence import JobClaim, lock_claimed_job
from core.packaged import imagenet_base, packaged_base
from core.recipe.duration_estimate import estimate_seconds_per_image_on_base
from core.retention import damage, references
from core.retention.damage import DatabaseDamageMarks
from core.settings import Settings
from core.storage import Blobs, ObjectStorage
from core.storage.blobs import DamagedBlob, iterate_verified_blob_chunks, require_object_digest
from core.telemetry import INGEST_IMAGES, INGEST_SECONDS
from core.usage import stored_bytes

_SMALL_SHARE = 0.5
"""Share of small images above which a batch counts as one of small images."""


def decode_archive_and_start_job(
    db: Database,
    store: ObjectStorage,
    claim: JobClaim,
    settings: Settings,
    folder: Path,
    monitor: DecodingCallbacks,
) -> None:
    """Decode the claimed job's archive, and move the job to the running state.

    Args:
        folder: an empty folder for the dataset files; the caller deletes it.

    Raises:
        StoredObjectDamaged: the stored archive is damaged.
        Rejected: the batch is unusable; `extra["report"]` says why. The caller calls
            `claim.reject_job`.
        LeaseLost: the claim is no longer the job's; nothing was changed.
        WrongState: a stop was requested meanwhile; nothing was changed.
    """
    with db.read() as session:
        task = session.get_one(Task, claim.task_id)
        model = session.get_one(Model, claim.model_id)
        policy = session.get_one(Job, claim.job_id).recipe.get("data_report", "warn")
        former_names = read_class_aliases(session, model.id)
    if task.archive_key is None:
        raise Rejected(f"The archive of task {task.number} is gone; send the batch again.")
    archive = StoredUploadArchive(
        task.archive_key,
        task.sha256,
        task.media_type,
        task.report,
        list(task.classes),
        former_names,
    )
    begin = time.monotonic()
    path = fetch_uploaded_archive(db, store, model.id, archive, folder)
    ingested_batch = decode_batch_within_limits(path, archive, model, settings, folder, monitor)
    blobs = Blobs(store, settings.make_folder("cache"), marks=DatabaseDamageMarks(db))
    ingested_batch = add_earlier_task_duplicates_to_report(
        db, blobs, model, task.number, ingested_batch, near=policy != "off"
    )
    # A contradiction with an earlier task shows only now that the pixels are known.
    refuse_unaccepted_label_contradictions(ingested_batch.report)
    files = [ingested_batch.train, ingested_batch.held_out, ingested_batch.traces]
    files += [] if ingested_batch.selection is None else [ingested_batch.selection]
    # With the link, the job need not download what it learns from next.
    digests = [blobs.put_file(path, link=True)[0] for path in files]
    INGEST_SECONDS.observe(time.monotonic() - begin)
    INGEST_IMAGES.inc(ingested_batch.n_train + ingested_batch.n_held_out)
    hit_failpoint("ingest-stored")
    with db.write() as session:
        # Until the transaction ends, no sweep deletes the blobs that it is about to name.
        references.lock_blob_references_against_deletion(session)
        for sha256, path in zip(digests, files, strict=True):
            if not blobs.has(sha256):  # it was deleted as unused after it was stored
                blobs.put_file(path)
        # The lock comes after the slow calls to the store, since heartbeats need this row.
        job = lock_claimed_job(session, claim)
        task = _store_decoding_result_in_task(session, claim, ingested_batch, digests)
        archive_key = task.archive_key
        now = db.now(session)
        for log_line in batch_log.build_batch_decoding_log_lines(ingested_batch):
            job_log.add_job_log_line(session, job.id, log_line, now)
        change_job_state(session, job, JobAction.START, now)
        # The owner's row is locked last, so the other rows are written before.
        session.flush()
        size = sum(path.stat().st_size for path in files)
        stored_bytes.add_stored_bytes(session, job.owner_id, size)
    hit_failpoint("ingest-committed")
    delete_task_archive(db, store, task.id, archive_key)


@dataclass(frozen=True)
class StoredUploadArchive:
    """A stored upload: its key, SHA-256, media type, and findings from its submission.

    Attributes:
        fixed: the only labels allowed, in the order of their numbers; None leaves that to the model.
        former_names: former class names of its model.
    """

    key: str
    sha256: str
    media_type: str
    report: BatchReport
    classes: Collection[str] = ()
    former_names: FormerNames = field(default_factory=dict)
    fixed: list[str] | None = None


def decode_batch_within_limits(
    path: Path,
    archive: StoredUploadArchive,
    model: Model,
    settings: Settings,
    folder: Path,
    monitor: DecodingCallbacks,
) -> IngestedBatch:
    """Decode a model's uploaded batch within the ingest limits, and add the submission's findings.

    Args:
        path: the archive as a local file, see `fetch_uploaded_archive`.
        folder: receives the dataset files.

    Raises:
        Rejected: the batch is unusable; `extra["report"]` says why, if decoding got so far.
        IngestStopped: `monitor.stop` returned True.
    """
    options = IngestOptions(
        image_size=int(model.image["size"]),
        channels=int(model.image["channels"]),
        limits=ArchiveLimits.from_settings(settings),
        resizing=SquareResizingSettings.from_json(model.image),
        reading=parse_stored_reading_options(
            archive.report.get("reading"), archive.classes, archive.former_names
        ),
        allowed_classes=model.classes if model.scenario == "data" else archive.fixed,
        selection_share=SELECTION_SHARE if model.selection else 0.0,
        duplicates=archive.report.get("duplicates_policy", "keep"),
        processes=settings.threads,
    )
    try:
        ingested_batch = decode_archive_to_datasets(
            path, archive.media_type, folder, options, monitor
        )
    except (ArchiveHostile, ArchiveInvalid, ArchiveTooLarge, LabelsInvalid) as error:
        # The batch is at fault, though only now: meanwhile task 1 of a data model has fixed the
        # classes.
        raise Rejected(error.detail, fields=error.fields, extra=error.extra) from error
    except Rejected as error:
        error.extra["report"] = keep_submission_fields_in_decoded_report(
            archive.report, error.extra["report"]
        )
        raise
    hit_failpoint("ingest-decoded")
    report = keep_submission_fields_in_decoded_report(archive.report, ingested_batch.report)
    advice = suggest_base_for_small_images(model.base, model.image["size"], ingested_batch)
    if advice:
        report["notes"] = [*report["notes"], *advice]
    return replace(ingested_batch, report=report)


def suggest_base_for_small_images(
    base: ModelBase, size: int, ingested_batch: IngestedBatch
) -> list[str]:
    """Suggest the small base network, with the seconds it saves, if most images of a batch are
    small.
    """
    images, small = (
        ingested_batch.n_train + ingested_batch.n_held_out,
        ingested_batch.report.get("small", 0),
    )
    if base != imagenet_base.NAME or small <= _SMALL_SHARE * images:
        return []
    small_size = packaged_base.load_packaged_base_description().size
    saved = (
        estimate_seconds_per_image_on_base(base, size).forward_s
        - estimate_seconds_per_image_on_base(packaged_base.PACKAGED, small_size).forward_s
    )
    return [
        f"{small:,} of {images:,} images have fewer than {SMALL_SIDE} pixels on their longer side, "
        f"and are enlarged to "
        f'{size}. A model with "base": "{packaged_base.PACKAGED}" reads them at {small_size} '
        f"pixels, and saves about "
        f"{saved * images:,.0f} s of one core in each pass over this batch"
    ]


def delete_task_archive(
    db: Database, store: ObjectStorage, task_id: str, archive_key: str | None
) -> None:
    """Delete a task's uploaded archive from the store, then its key from the database.

    An archive that another task names as well only loses this task's name.
    """
    if archive_key is None:
        return
    with db.write() as session:
        # One at a time: of two tasks that share an archive, the second must see that it is the last.
        references.lock_blob_references_exclusively(session)
        task = session.get_one(Task, task_id, with_for_update=True)
        other_tasks = (
            select(Task.id).where(Task.archive_key == archive_key, Task.id != task_id).limit(1)
        )
        if session.execute(other_tasks).first() is None:
            store.delete(archive_key)
            hit_failpoint("archive-deleted")
        if task.archive_key == archive_key:
            task.archive_key = None


def _store_decoding_result_in_task(
    session: Session, claim: JobClaim, ingested_batch: IngestedBatch, digests: list[str]
) -> Task:
    """Write a decoded batch's result to the task's row; digests: of the training part, the held-out
    part, the traces, and the selection images if there are any.
    """
    model = session.get_one(Model, claim.model_id, with_for_update=True, populate_existing=True)
    task = session.get_one(Task, claim.task_id, with_for_update=True, populate_existing=True)
    if model.scenario == "data":
        # task 1 fixes the classes, which is safe since jobs of one model run one by one
        if model.classes is None:
            model.classes = list(ingested_batch.class_list)
        unknown = sorted(set(ingested_batch.classes) - set(model.classes))
        if unknown:
            raise Rejected(
                f"This model knows a fixed list of classes; the batch also has "
                f"{', '.join(unknown[:20])}.",
                extra={"report": ingested_batch.report},
            )
    task.classes = dict(ingested_batch.classes)
    # A name that a batch uses for a class again is no former one.
    delete_reused_class_aliases(session, model.id, task.classes)
    task.n_train, task.n_held_out = ingested_batch.n_train, ingested_batch.n_held_out
    # A retry decodes again, and must not lose what a person has accepted since.
    settled = task.report.get("settled")
    task.report = (
        {**ingested_batch.report, "settled": settled} if settled else ingested_batch.report
    )
    task.warnings = [
        *task.warnings,
        *(text for text in ingested_batch.warnings if text not in task.warnings),
    ]
    task.train_sha256, task.held_out_sha256, task.traces_sha256 = digests[:3]
    task.selection_sha256 = digests[3] if ingested_batch.selection is not None else None
    task.n_selection = ingested_batch.n_selection or None
    task.traces_bytes = ingested_batch.traces.stat().st_size
    # Stored features belong to the images of an earlier decoding.
    task.features_sha256 = task.features_bytes = task.features_key = None
    task.train_deleted_at = task.held_out_deleted_at = None
    return task


def fetch_uploaded_archive(
    db: Database, store: ObjectStorage, model_id: str, archive: StoredUploadArchive, folder: Path
) -> Path:
    """Return the uploaded archive as a local file: the stored one itself, or a copy.

    Raises:
        StoredObjectDamaged: it is missing or damaged: not the batch's fault.
    """
    path, key = folder / "archive", archive.key
    with damage.reword_damage_errors_of_model(db, model_id):
        try:
            local = store.get_local_path(key)
            if local is not None:
                # The file is read in place, so it is verified before any of it is decoded.
                require_object_digest(store, key, archive.sha256)
                return local
            with path.open("wb") as file:
                for chunk in iterate_verified_blob_chunks(store.read(key), key, archive.sha256):
                    file.write(chunk)
        except DamagedBlob:
            DatabaseDamageMarks(db).mark_damaged(key)
            raise
    return path
