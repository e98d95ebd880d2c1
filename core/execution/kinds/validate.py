"""Validation job: decode a batch as a submission would, report, and store nothing of it."""

import time

from core.contract.reports.report import BatchCheck
from core.database.job_log import Line
from core.database.kinds import JobKind as Name
from core.execution import batch_log
from core.execution.batch_comparison import add_earlier_task_duplicates_to_report
from core.execution.kinds.kind import ClaimedJobContext, JobKindDefinition, JobOutcome
from core.execution.kinds.uploaded_batch import decode_uploaded_batch
from core.ingest.findings.contradictions import refuse_unaccepted_label_contradictions
from core.retention.damage import DatabaseDamageMarks
from core.storage import Blobs
from core.telemetry import INGEST_IMAGES, INGEST_SECONDS

LEARNED_LATER = (
    "Nothing was learned: what the version can do, and whether it passes its gate, is "
    "measured by the job."
)


def _run_validate_job(work: ClaimedJobContext) -> JobOutcome:
    """Run a validate job: decode a batch, and report its problems without learning it."""
    begin = time.monotonic()
    decoded = decode_uploaded_batch(work, work.folder, lambda _session, _job: None)
    job, model, report, batch = decoded.job, decoded.model, decoded.report, decoded.made
    blobs = Blobs(
        work.store, work.settings.make_folder("cache"), marks=DatabaseDamageMarks(work.db)
    )
    is_looked_through = job.recipe.get("data_report", "warn") != "off"
    batch = add_earlier_task_duplicates_to_report(
        work.db, blobs, model, None, batch, near=is_looked_through
    )
    # As for a submission, contradictions with earlier tasks show only after decoding.
    refuse_unaccepted_label_contradictions(batch.report)
    INGEST_SECONDS.observe(time.monotonic() - begin)
    INGEST_IMAGES.inc(batch.n_train + batch.n_held_out)
    warnings = report["warnings"]
    completed_report: BatchCheck = {
        **report,
        "valid": True,
        "classes": dict(batch.classes),
        "n_train": batch.n_train,
        "n_held_out": batch.n_held_out,
        "ignored": batch.report["ignored"],
        "notes": batch.report["notes"],
        "report": batch.report,
        "checked": batch.report["checked"],
        "not_checked": [LEARNED_LATER],
        # The checks of the request may have said the same before anything was decoded.
        "warnings": [*warnings, *(text for text in batch.warnings if text not in warnings)],
    }
    summary: Line = ("info", "A submit would take this batch. Nothing of it was kept.")
    return JobOutcome(completed_report, [*batch_log.build_batch_decoding_log_lines(batch), summary])


# The first priority, since a check may overtake older batches (`docs/operations.md`).
VALIDATE = JobKindDefinition(
    str(Name.VALIDATE),
    priority=0,
    longest_s=lambda settings: settings.max_job_s,
    run=_run_validate_job,
)
