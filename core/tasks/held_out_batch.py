"""A batch with held-out images alone: it measures the classifier that came with its model.

Its images become the held-out part of task 1, whose classes it may have and no other. A job decodes
them and lets version 1 predict them. It has the place of task 1 in the lineage, so later tasks wait
for it, and are then measured on these images, too.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.base import ADOPTED, ADOPTED_VERSION
from core.contract.responses.audit import AuditData
from core.contract.responses.task import Accepted
from core.database import job_log
from core.database import jobs as job_rows
from core.database.jobs import build_unfinished_job_condition
from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import JobState
from core.database.tables import Job, Model, Task, VersionTaskResult
from core.errors import Invalid, LabelsInvalid, WrongState
from core.ids import new_id
from core.ingest.names import quote_name
from core.jobs.job_response import build_job_response
from core.jobs.jobs import build_queued_taskless_job
from core.recipe.stored_patch import build_stored_recipe_override
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.tasks.submission import BatchSubmission, LockedModel
from core.tasks.submitted_batch import BatchSubmissionResponse, build_batch_archive_key
from core.tasks.task_response import build_task_response

_MOST_LISTED = 20


def may_batch_have_held_out_images_alone(db: Database, actor: Actor, model: str) -> bool:
    """Return True if a batch without training images is allowed: its model has adopted a classifier
    to measure.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        return find_model(session, actor, model).base == ADOPTED


def submit_batch_or_measure_adopted_classifier(
    submission: BatchSubmission,
) -> BatchSubmissionResponse[Accepted]:
    """Submit a batch as the next task, or measure an adopted classifier with it if all its images
    are held out.

    Raises:
        WrongState: task 1 is measured already, or a later task was sent before.
        Invalid: it has held-out images alone, and trials.
        PerennialError: see `BatchSubmission.submit_as_next_task`.
    """
    batch = submission.batch
    if batch.directory.n_train:
        return submission.submit_as_next_task()
    if batch.trials is not None:
        raise Invalid(
            "A batch with held-out images alone is not learned, so that it has no trials."
        )
    in_model = submission.plan_batch_in_current_model()
    report = submission.build_batch_report(in_model)
    override = build_stored_recipe_override(submission.catalogue, batch.override)
    key = build_batch_archive_key(new_id("job"))

    def add_measuring_job(
        session: Session, locked: LockedModel
    ) -> BatchSubmissionResponse[Accepted]:
        model, now = locked.model, locked.now
        task = session.scalars(
            select(Task).where(Task.model_id == model.id, Task.number == ADOPTED_VERSION)
        ).one()
        if (earlier := _find_measuring_job_of_archive(session, model, batch.sha256)) is not None:
            accepted: Accepted = {
                "task": build_task_response(session, model, task),
                "job": build_job_response(session, earlier),
            }
            return BatchSubmissionResponse(accepted, earlier.id, is_new=False, needs_archive=False)
        _require_adopted_task_measurable(session, model)
        _require_classes_known_to_classifier(task, batch.directory.classes)
        job = build_queued_taskless_job(model, JobKind.MEASURE, override, report["recipe"], now)
        job.task_number, job.place = ADOPTED_VERSION, model.next_place
        model.next_place += 1
        job.archive_key, job.archive_sha256, job.archive_bytes = key, batch.sha256, batch.bytes
        job.report = {**report, "checked": report["checked"], "valid": None, "n_held_out": None}
        session.add(job)
        session.flush()
        counts = batch.directory.classes
        log_line = job_log.build_validation_job_log_line(job, sum(counts.values()), len(counts))
        job_rows.record_job_creation(session, job, now, lines=[log_line])
        data: AuditData = {"model": model.id, "number": ADOPTED_VERSION, "sha256": batch.sha256}
        entry = AuditedChange("task.measure", task.id, data, model=model.id)
        record_audit_entry(session, submission.actor, entry, now)
        response: Accepted = {
            "task": build_task_response(session, model, task),
            "job": build_job_response(session, job),
        }
        return BatchSubmissionResponse(response, job.id)

    return submission.store_and_accept_batch(in_model, key, add_measuring_job, submission.upload)


def _find_measuring_job_of_archive(session: Session, model: Model, sha256: str) -> Job | None:
    """Return the job that measures, or has measured, the adopted classifier with the same archive."""
    ended = (JobState.REJECTED, JobState.FAILED, JobState.CANCELLED)
    query = select(Job).where(
        Job.model_id == model.id,
        Job.kind == str(JobKind.MEASURE),
        Job.archive_sha256 == sha256,
        Job.state.not_in(ended),
    )
    return session.scalars(query.order_by(Job.place.desc()).limit(1)).first()


def _require_adopted_task_measurable(session: Session, model: Model) -> None:
    """Check that task 1, the adopted classifier's, is not measured yet and no later task was sent.

    Raises:
        WrongState: something has, or one was.
    """
    mine = (
        Job.model_id == model.id,
        Job.kind == str(JobKind.MEASURE),
        build_unfinished_job_condition(Job.state),
    )
    open_job = session.scalar(select(Job.id).where(*mine).limit(1))
    if open_job is not None:
        raise WrongState(
            f"Job {open_job} measures task {ADOPTED_VERSION} already: wait for it, or cancel it first.",
            extra={"state": "running"},
        )
    if session.get(VersionTaskResult, (model.id, ADOPTED_VERSION, ADOPTED_VERSION)) is not None:
        raise WrongState(
            f"Task {ADOPTED_VERSION} is measured already, and its figures stay as they are. To measure the "
            "classifier on other images, adopt it as another model.",
            extra={"state": "measured"},
        )
    if model.next_task > ADOPTED_VERSION + 1:
        raise WrongState(
            f"Task {model.next_task - 1} was sent before, so versions could not be compared from "
            "the first update on. Adopt the classifier as another model, and send the held-out "
            "images before any other batch.",
            extra={"state": "learned"},
        )


def _require_classes_known_to_classifier(task: Task, classes: dict[str, int]) -> None:
    """Check that the adopted classifier knows all classes of a batch.

    Raises:
        LabelsInvalid: it lacks one.
    """
    unknown = sorted(set(classes) - set(task.classes))
    if unknown:
        listed = ", ".join(quote_name(name) for name in unknown[:_MOST_LISTED])
        raise LabelsInvalid(
            f"The classifier that came with the model does not know {listed}. Held-out images "
            "without training images can be of its own classes only: rename these, or leave them "
            "out.",
            extra={"unknown": unknown[:1000], "classes": sorted(task.classes)[:1000]},
        )
