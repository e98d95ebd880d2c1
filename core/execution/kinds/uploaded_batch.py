"""The batch of a job that has no task of its own: read its report, and decode its archive."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sqlalchemy.orm import Session

from core.contract.reports.report import BatchCheck
from core.database.tables import Job, Model
from core.edits.listing import read_class_aliases
from core.errors import Rejected
from core.execution.kinds.kind import ClaimedJobContext
from core.execution.validate import (
    StoredUploadArchive,
    decode_batch_within_limits,
    fetch_uploaded_archive,
)
from core.ingest.ingest import DecodingCallbacks, IngestedBatch


@dataclass(frozen=True)
class DecodedUpload:
    """A batch decoded from an uploaded archive, with its job, model and report.

    Attributes:
        report: report of the request that sent it.
        made: its decoded files.
    """

    job: Job
    model: Model
    report: BatchCheck
    made: IngestedBatch


def decode_uploaded_batch(
    work: ClaimedJobContext, folder: Path, find_fixed: Callable[[Session, Job], list[str] | None]
) -> DecodedUpload:
    """Decode the archive that was uploaded for a job.

    Args:
        folder: an empty folder for the dataset files.
        find_fixed: returns the only labels allowed, in the order of their numbers; None leaves that
            to the model.

    Raises:
        Rejected: the batch is unusable, or gone.
        StoredObjectDamaged: the stored archive is damaged.
    """
    with work.db.read() as session:
        job = session.get_one(Job, work.claim.job_id)
        model = session.get_one(Model, job.model_id)
        fixed = find_fixed(session, job)
        former_names = read_class_aliases(session, model.id)
    report = cast(BatchCheck | None, job.report)
    if job.archive_key is None or report is None:
        raise Rejected("The uploaded batch is gone; send it again.")
    archive = StoredUploadArchive(
        job.archive_key,
        report["sha256"],
        report["media_type"],
        report["report"],
        list(report["classes"]),
        former_names=former_names,
        fixed=fixed,
    )

    def report_progress(done: int, total: int) -> None:
        work.progress("validate", done, total)

    path = fetch_uploaded_archive(work.db, work.store, model.id, archive, folder)
    monitor = DecodingCallbacks(report_progress, work.must_stop)
    ingested_batch = decode_batch_within_limits(
        path, archive, model, work.settings, folder, monitor
    )
    return DecodedUpload(job, model, report, ingested_batch)
