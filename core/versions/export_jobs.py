"""Downloads built by a worker's job: requested on download, and built once for all callers.

There is one job at a time for a version and a format. If the sweep has removed the file, a new job
builds it again. A failed job is not repeated automatically, since it would fail again.
"""

from typing import cast

from sqlalchemy.orm import Session

from core.contract.responses.audit import AuditData
from core.contract.responses.job import JobOut
from core.contract.responses.recipe import RecipeOut
from core.database import job_log
from core.database.jobs import record_job_creation
from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import TERMINAL, JobState
from core.database.tables import ExportJob, Job, Model, Version
from core.errors import ExportUnavailable
from core.jobs.job_response import build_job_response
from core.jobs.jobs import build_queued_taskless_job
from core.lineage import lineage
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.usage import quota
from core.versions import exporters
from core.versions.versions import find_version

NO_WORKER = (
    "No worker here can export to ONNX. Whoever runs the service installs the packages where a "
    "worker runs, pip install onnx onnxruntime onnxscript, and starts that worker again. Until "
    "then take the version as format=safetensors."
)


def queue_export_job(
    db: Database, actor: Actor, model: str, version: str, *, format: str, max_open_jobs: int
) -> tuple[JobOut, bool]:
    """Queue the job that builds an export not stored yet; return the job, and True if it is new.

    Raises:
        ExportUnavailable: no worker can build it, or the last job failed or was cancelled.
        TooManyRequests: the owner has no room for another open job.
    """
    with db.write() as session:
        owner = lineage.lock_model_row(
            session, find_model(session, actor, model).id
        )  # concurrent callers share one job
        row = find_version(session, owner, version)
        export_row = session.get(ExportJob, (row.id, format))
        job = None if export_row is None else session.get_one(Job, export_row.job_id)
        if job is not None and JobState(job.state) not in TERMINAL:
            return build_job_response(session, job), False
        if job is not None and job.state != JobState.SUCCEEDED:
            raise ExportUnavailable(_explain_missing_download(job, row, format))
        now = db.now(session)
        if not exporters.has_exporting_worker(session, now):
            raise ExportUnavailable(NO_WORKER)
        new = _add_export_job(session, actor, owner, row, format, now)
        # Replaces the row of an earlier job whose file the sweep has removed.
        session.merge(ExportJob(version_id=row.id, format=format, job_id=new.id, fence=None))
        # Before the check of the limit, which counts the new job and, locking the owner's row,
        # comes last.
        session.flush()
        quota.require_added_job_within_limit(session, owner.owner_id, max_open_jobs)
        return build_job_response(session, new), True


def _add_export_job(
    session: Session, actor: Actor, model: Model, version: Version, format: str, now: float
) -> Job:
    """Add an export job with its log line, its event and its audit row."""
    recipe = {} if version.manifest.recipe is None else version.manifest.recipe.to_json()
    job = build_queued_taskless_job(model, JobKind.EXPORT, {}, cast(RecipeOut, recipe), now)
    job.report = {"version": version.number, "format": format}
    session.add(job)
    session.flush()
    text = f"Accepted: version {version.number} is exported as {format}."
    job_log.add_job_log_line(session, job.id, ("info", text), now)
    record_job_creation(session, job, now)
    data: AuditData = {"model": model.id, "version": version.number}
    record_audit_entry(
        session, actor, AuditedChange("version.export", job.id, data, model=model.id), now
    )
    return job


def _explain_missing_download(job: Job, version: Version, format: str) -> str:
    """Explain why there is no exported download, and what to do."""
    subject = f"The export of version {version.number} as {format}"
    retried = f"POST /v1/jobs/{job.id}/retry tries again"
    if job.error is None:
        return f"{subject} was cancelled (job {job.id}). {retried}."
    why = f"{subject} failed (job {job.id}): {job.error['detail'].rstrip('.')}."
    # Other errors, such as a lost worker, may not occur again.
    if job.error["kind"] != "export":
        return f"{why} {retried}."
    return (
        f"{why} With the same packages it fails again: take the version as format=safetensors. "
        f"After an upgrade of the worker {retried}."
    )
