"""Check a whole batch without learning it (`?validate=full`): a job decodes and reports.

The job has no task and no place in the model's lineage: nothing waits for it, and it waits only for
a worker. Its archive is stored until the job has ended, and counts among the bytes of its owner.
"""

from sqlalchemy.orm import Session

from core.contract.responses.audit import AuditData
from core.contract.responses.job import JobOut
from core.database import job_log
from core.database import jobs as job_rows
from core.database.kinds import JobKind
from core.ids import new_id
from core.jobs.job_response import build_job_response
from core.jobs.jobs import build_queued_taskless_job
from core.recipe.stored_patch import build_stored_recipe_override
from core.requests.audit import AuditedChange, record_audit_entry
from core.tasks.submission import BatchSubmission, LockedModel
from core.tasks.submitted_batch import BatchSubmissionResponse, build_batch_archive_key


def queue_batch_validation(submission: BatchSubmission) -> BatchSubmissionResponse[JobOut]:
    """Queue a job that decodes a batch to check it; for errors see
    `BatchSubmission.submit_as_next_task`.
    """
    batch, batch_in_model = submission.batch, submission.plan_batch_in_current_model()
    report = submission.build_batch_report(batch_in_model)
    override = build_stored_recipe_override(submission.catalogue, batch.override)
    key = build_batch_archive_key(new_id("job"))

    def add_validation_job(
        session: Session, locked: LockedModel
    ) -> BatchSubmissionResponse[JobOut]:
        model, now = locked.model, locked.now
        job = build_queued_taskless_job(model, JobKind.VALIDATE, override, report["recipe"], now)
        job.archive_key, job.archive_sha256, job.archive_bytes = key, batch.sha256, batch.bytes
        job.report = {**report, "checked": report["checked"], "valid": None, "n_held_out": None}
        session.add(job)
        # The log line and the response refer to the new row.
        session.flush()
        class_counts = batch.directory.classes
        log_line = job_log.build_validation_job_log_line(
            job, sum(class_counts.values()), len(class_counts)
        )
        job_rows.record_job_creation(session, job, now, lines=[log_line])
        data: AuditData = {"model": model.id, "sha256": batch.sha256}
        record_audit_entry(
            session,
            submission.actor,
            AuditedChange("batch.validate", job.id, data, model=model.id),
            now,
        )
        return BatchSubmissionResponse(build_job_response(session, job), job.id)

    # Its upload is not given: it stays, so that it can be submitted after the check.
    return submission.store_and_accept_batch(batch_in_model, key, add_validation_job)
