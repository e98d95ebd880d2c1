"""Measure a classifier that came with its model: decode held-out images, and let it predict them.

The images become the held-out part of task 1, whose classes stay those of the classifier.
"""

import json
import shutil
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.base import ADOPTED_VERSION
from core.contract.jobs.job_spec import LocalVersionPartFile
from core.contract.jobs.measure_job import MeasurementSpec
from core.contract.reports.report import BatchCheck
from core.database import job_log
from core.database.jobs import change_job_state
from core.database.kinds import JobKind as Name
from core.database.states import JobAction
from core.database.tables import Job, Model, Task
from core.execution import batch_log
from core.execution.kinds.kind import ClaimedJobContext, JobKindDefinition
from core.execution.kinds.uploaded_batch import decode_uploaded_batch
from core.execution.parent_parts import list_parts_of_version_itself
from core.ingest.ingest import IngestedBatch, IngestStopped
from core.jobs.fence import lock_claimed_job
from core.lineage import lineage
from core.retention import damage, references
from core.retention.damage import DatabaseDamageMarks
from core.storage import Blobs
from core.usage import stored_bytes

SPEC = "measure.json"


def _run_measure_job(work: ClaimedJobContext) -> None:
    try:
        _decode_and_store_held_out_images(work)
    finally:
        shutil.rmtree(work.folder / "ingest", ignore_errors=True)
    # Fetching parts may take long, and a stopped job needs none.
    if work.must_stop():
        raise IngestStopped
    work.begin("prepare")
    spec = _fetch_measure_inputs_and_write_spec(work)
    if work.must_stop():
        raise IngestStopped
    work.train(spec)


def _decode_and_store_held_out_images(work: ClaimedJobContext) -> None:
    """Decode a measure job's archive, and store its images as the task's held-out data.

    Raises:
        Rejected: the batch is unusable.
        StoredObjectDamaged: the stored archive is damaged.
        LeaseLost: the claim is no longer the job's; nothing was changed.
        WrongState: a stop was requested meanwhile; nothing was changed.
    """
    folder = work.folder / "ingest"
    folder.mkdir()
    decoded = decode_uploaded_batch(
        work, folder, lambda session, job: sorted(_get_task_to_measure(session, job).classes)
    )
    report, batch = decoded.report, decoded.made
    blobs = Blobs(
        work.store, work.settings.make_folder("cache"), marks=DatabaseDamageMarks(work.db)
    )
    files = [batch.held_out, batch.traces]
    digests = [blobs.put_file(file, link=True)[0] for file in files]
    with work.db.write() as session:
        # Until the transaction ends, no sweep deletes the blobs that it is about to name.
        references.lock_blob_references_against_deletion(session)
        for sha256, file in zip(digests, files, strict=True):
            if not blobs.has(sha256):  # it was deleted as unused after it was stored
                blobs.put_file(file)
        job = lock_claimed_job(session, work.claim)
        task = _get_task_to_measure(session, job, lock=True)
        _record_decoded_held_out_data(task, batch, report, digests)
        batch_check: BatchCheck = {
            **report,
            "valid": True,
            "checked": batch.report["checked"],
            "report": batch.report,
            "n_held_out": batch.n_held_out,
        }
        job.report = batch_check
        now = work.db.now(session)
        for log_line in batch_log.build_batch_decoding_log_lines(batch):
            job_log.add_job_log_line(session, job.id, log_line, now)
        change_job_state(session, job, JobAction.START, now)
        session.flush()
        size = sum(file.stat().st_size for file in files)
        # At the end of the transaction, since it locks the owner's row.
        stored_bytes.add_stored_bytes(session, job.owner_id, size)


def _fetch_measure_inputs_and_write_spec(work: ClaimedJobContext) -> Path:
    """Fetch the input files of a measuring process, write its spec, and return the path.

    Raises:
        StoredObjectDamaged: a part or the images are missing or damaged.
    """
    settings, claim = work.settings, work.claim
    blobs = Blobs(work.store, settings.make_folder("cache"), marks=DatabaseDamageMarks(work.db))
    # Rows are read in one short transaction, and files are fetched after it.
    with work.db.read() as session:
        job = session.get_one(Job, claim.job_id)
        model = session.get_one(Model, job.model_id)
        task = _get_task_to_measure(session, job)
        version = lineage.find_version_by_number(session, model, ADOPTED_VERSION)
        assert version is not None and task.held_out_sha256 is not None, "they came with the model"
        parts = list_parts_of_version_itself(session, version)
    with damage.reword_damage_errors_of_model(work.db, model.id):
        spec = MeasurementSpec(
            work="measure",
            manifest=version.manifest,
            parts=[
                LocalVersionPartFile(
                    name=part.name, type=part.type, path=blobs.fetch_verified_file(part.sha256)
                )
                for part in parts
            ],
            task=task.number,
            classes=sorted(task.classes),
            held_out=blobs.fetch_verified_file(task.held_out_sha256),
            out=work.folder / "out",
            threads=settings.threads,
            device=settings.device if claim.device == "auto" else claim.device,
            gpu_memory_share=settings.gpu_memory_share,
        )
    path = work.folder / SPEC
    path.write_text(json.dumps(spec.to_json(), ensure_ascii=False))
    return path


def _get_task_to_measure(session: Session, job: Job, *, lock: bool = False) -> Task:
    """Find the task whose held-out images a measure job was given."""
    query = select(Task).where(Task.model_id == job.model_id, Task.number == job.task_number)
    query = query.execution_options(populate_existing=True)
    return session.scalars(query.with_for_update() if lock else query).one()


def _record_decoded_held_out_data(
    task: Task, batch: IngestedBatch, report: BatchCheck, digests: list[str]
) -> None:
    """Write the decoding result to the task's row; digests: of the held-out part and the traces."""
    task.sha256, task.bytes, task.media_type = (
        report["sha256"],
        report["bytes"],
        report["media_type"],
    )
    # Classes without an image stay, since the classifier knows them.
    task.classes = {name: batch.classes.get(name, 0) for name in task.classes}
    task.n_held_out = batch.n_held_out
    task.report = batch.report
    task.warnings = list(batch.warnings)
    task.held_out_sha256, task.traces_sha256 = digests
    task.traces_bytes = batch.traces.stat().st_size
    task.held_out_deleted_at = None


MEASURE = JobKindDefinition(
    str(Name.MEASURE),
    priority=1,
    longest_s=lambda settings: settings.max_job_s,
    run=_run_measure_job,
)
