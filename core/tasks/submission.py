"""Submission of a batch to a model: a preview, and the transaction that accepts it.

The response to a repeated batch is the existing task (`core.tasks.repeated_batches`). Any other batch is
accepted in one transaction after its archive is safe in the store. It adds task, queued job with
its resolved recipe, event, audit row and idempotency record. A failed transaction leaves no
archive.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from core.admission.admission import ANY, AdmissionLimits, JobTaskAndImageCounts
from core.admission.applicability import require_fitting_recipe_and_list_warnings
from core.contract.catalogue import RecipeCatalogue
from core.contract.patch import RecipePatch
from core.contract.reports.report import Report
from core.contract.responses.audit import AuditData
from core.contract.responses.task import Accepted
from core.database import job_log
from core.database import jobs as job_rows
from core.database.session import Database, build_database_time_expression
from core.database.tables import ClassAlias, Job, Model, Task
from core.failpoints import hit_failpoint
from core.ids import new_id
from core.jobs import jobs
from core.jobs.job_response import build_job_response as shown_job
from core.jobs.job_response import build_model_stopped_condition
from core.lineage.batch_outlook import describe_next_task_outlook_from_tasks
from core.lineage.standing import TaskStanding
from core.lineage.wording import can_relearn_task
from core.recipe.resolve import ResolvedRecipe, resolve_recipe
from core.recipe.stored_patch import build_stored_recipe_override
from core.requests import idempotency
from core.requests.actor import Actor, find_model, read_query_row_for_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.retention import archives
from core.storage import ObjectStorage
from core.tasks import batch_plan, batch_report, repeated_batches, retries
from core.tasks.batch_plan import BatchPlanForModel, BatchRecipePlan, ModelHistoryForBatch
from core.tasks.batch_recipe import estimate_batch_job_seconds, resolve_batch_recipe
from core.tasks.class_names import compare_class_names
from core.tasks.repeated_batches import TaskWithEqualContent
from core.tasks.submitted_batch import (
    Answer,
    BatchSubmissionResponse,
    SpooledBatch,
    build_batch_archive_key,
    build_response_to_repeated_request,
    create_task_row_with_next_number,
)
from core.tasks.task_response import build_task_response as shown_task
from core.tasks.task_response import task_to_json
from core.trials.plan import planned_trials_to_json
from core.trials.rows import add_planned_trials
from core.uploads import complete_uploads
from core.uploads.archive_storage import store_archive_unless_block_fails
from core.uploads.complete_uploads import CompleteUpload
from core.usage import quota, stored_bytes


@dataclass(frozen=True)
class LockedModel:
    """A model whose row is locked until the transaction ends.

    Attributes:
        now: seconds since 1970 by the database's clock.
        is_stopped: True if a task stops the model.
    """

    model: Model
    now: float
    is_stopped: bool


Add = Callable[[Session, LockedModel], BatchSubmissionResponse[Answer]]
"""Function that adds the rows of an accepted batch to a locked model."""


def require_batch_room_and_detect_former_names(
    db: Database,
    actor: Actor,
    model: str,
    *,
    max_open_jobs: int,
    max_bytes: int,
    length: int | None,
) -> bool:
    """Check before a batch's body is read that the model exists and its owner has room.

    Return True if the model has former class names, which batches may still use.

    Args:
        max_open_jobs: jobs that the owner may have.
        max_bytes: bytes that the owner may store; 0 for no limit.
        length: bytes of the body; None if the client did not say.

    Raises:
        NotFound: the caller sees no such model.
        TooManyRequests: the owner has `max_open_jobs` unfinished jobs.
        StorageQuotaReached, BodyTooLarge: see `core.usage.quota`.
    """
    open_jobs = quota.build_open_job_count_query(Model.owner_id).scalar_subquery()
    # One statement for all three answers: every upload waits for it before its body is read.
    with db.read(one_statement=True) as session:
        has_former_names = exists().where(ClassAlias.model_id == Model.id)
        query = select(Model, open_jobs, has_former_names)
        row, count, has_names = read_query_row_for_model(session, actor, model, query)
    quota.require_open_jobs_below_limit(count, max_open_jobs)
    quota.require_storage_room(db, row.owner_id, max_bytes, length)
    return bool(has_names)


@dataclass(frozen=True)
class BatchSubmission:
    """Use case of submitting a batch to a model, as its next task or only for a check.

    Attributes:
        repeat: idempotency key, if the request has one.
        max_bytes: bytes that the model's owner may store; 0 for no limit.
        max_open_jobs: jobs that the owner may have; 0 for no limit.
        admission: limits on the job.
        upload: resumable upload that the batch came by; a task uses it up, a check does not.
    """

    db: Database
    store: ObjectStorage
    catalogue: RecipeCatalogue
    actor: Actor
    model: str
    batch: SpooledBatch
    repeat: idempotency.IdempotentRequestIdentity | None = None
    max_bytes: int = 0
    max_open_jobs: int = 0
    admission: AdmissionLimits = ANY
    upload: CompleteUpload | None = None

    def preview_submission(self) -> Report:
        """Return what submitting this batch would do, without doing it (`?validate=only`).

        Raises:
            NotFound, LabelsInvalid, InvalidRecipe, JobTooLarge: see `submit_as_next_task`.
        """
        return self.build_batch_report(self.plan_batch_in_current_model())

    def build_batch_report(self, batch_in_model: BatchPlanForModel) -> Report:
        """Return the facts about the batch that its file names and sizes show."""
        batch, directory = self.batch, self.batch.directory
        report: Report = {
            "valid": True,
            "sha256": batch.sha256,
            "bytes": batch.bytes,
            "media_type": directory.media_type,
            "layout": directory.layout,
            "classes": directory.classes,
            "n_train": directory.n_train,
            "n_test": directory.n_test,
            "ignored": directory.ignored,
            "notes": list(directory.notes),
            "report": batch_report.build_task_report_before_decoding(
                directory, batch_in_model.names, batch.duplicates_policy, batch.conflicts_policy
            ),
            "checked": batch_report.CHECKED,
            "not_checked": batch_report.describe_unmade_batch_checks(directory),
            "recipe": batch_in_model.resolved_recipe.recipe,
            "warnings": [
                *batch_in_model.resolved_recipe.warnings,
                *batch_report.list_layout_and_class_name_warnings(
                    directory,
                    batch_in_model.names,
                    batch_in_model.row["name"],
                    batch_in_model.row["scenario"],
                ),
                *batch_report.list_few_images_of_new_class_warnings(
                    directory, batch_in_model.names
                ),
                *self._list_repeated_batch_warnings(batch_in_model.same, batch_in_model.expected_s),
            ],
            "expected_s": batch_in_model.expected_s,
        }
        if batch_in_model.repeats is not None:
            report["repeats"] = batch_in_model.repeats
        if batch_in_model.plan.trials:
            report["trials"] = planned_trials_to_json(batch_in_model.plan.trials)
        return report

    def submit_as_next_task(self) -> BatchSubmissionResponse[Accepted]:
        """Submit the batch as the model's next task, unless it repeats one (`core.tasks.repeated_batches`).

        Raises:
            NotFound: the model or the upload is gone.
            StorageQuotaReached, TooManyRequests: the owner has no room in the store or in the queue.
            LabelsInvalid: the model does not know a class (data scenario).
            InvalidRecipe: the resolved recipe cannot be used.
            JobTooLarge: the job exceeds the limits of `admission`.
            IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
        """
        override = build_stored_recipe_override(self.catalogue, self.batch.override)
        task_id = new_id("tsk")
        planned = self._plan_batch_or_none_if_repeated(
            plans_known=False
        )  # errors are raised before any bytes move
        if planned is None and (response_of_known := self._answer_repeated_batch()) is not None:
            return response_of_known
        batch_in_model = planned or self.plan_batch_in_current_model()

        add_task = partial(self._add_task_and_job, batch_in_model, override, task_id)
        return self.store_and_accept_batch(
            batch_in_model, build_batch_archive_key(task_id), add_task, self.upload
        )

    def _add_task_and_job(
        self,
        batch_in_model: BatchPlanForModel,
        override: RecipePatch,
        task_id: str,
        session: Session,
        locked: LockedModel,
    ) -> BatchSubmissionResponse[Accepted]:
        """Add the batch's task and its job; if an equal batch came meanwhile, respond with that."""
        model, now = locked.model, locked.now
        is_same = batch_plan.get_model_column_values(model) == batch_in_model.row
        # Tasks are added under the lock of their model, and `next_task` rises with each: if it has
        # not changed, there is still none with the same content where there was none.
        is_first = is_same and not batch_in_model.same
        same = (
            []
            if is_first
            else repeated_batches.find_tasks_with_same_content(session, model, self.batch.sent)
        )
        repeated = self._build_repeat_response_or_retry_task(session, model, same, now)
        if repeated is not None:
            return repeated
        # Planned again only if the model has changed meanwhile, as by another batch.
        plan = (
            batch_in_model.plan
            if is_same
            else self.make_recipe_plan(session, self._read_model_history(session, model.id))
        )
        task = self._make_task_row(batch_in_model, plan, same, task_id, locked)
        # Trials begin with the first of them.
        override = plan.trials[0].override if plan.trials else override
        job = jobs.build_queued_task_job(model, task, override, plan.resolved_recipe.recipe, now)
        job.warnings = plan.missing
        session.add(task)
        # Before the job, which has a foreign key to the task.
        session.flush()
        session.add(job)
        session.flush()
        add_planned_trials(session, job, plan.trials, self.batch.trials)
        job_rows.record_job_creation(session, job, now, lines=job_log.build_first_log_lines(task))
        data: AuditData = {
            "model": model.id,
            "number": task.number,
            "sha256": self.batch.sha256,
            "job": job.id,
        }
        record_audit_entry(
            session, self.actor, AuditedChange("task.submit", task.id, data, model=model.id), now
        )
        response: Accepted = {
            "task": task_to_json(model, task, job, TaskStanding.QUEUED),
            "job": shown_job(session, job, model, may_be_stopped=locked.is_stopped),
            "expected_s": batch_in_model.expected_s,
        }
        return BatchSubmissionResponse(response, job.id)

    def _make_task_row(
        self,
        batch_in_model: BatchPlanForModel,
        plan: BatchRecipePlan,
        same: Sequence[TaskWithEqualContent],
        task_id: str,
        locked: LockedModel,
    ) -> Task:
        """Create the database row of the batch's task, with its report and warnings."""
        batch, directory = self.batch, self.batch.directory
        policies = batch.duplicates_policy, batch.conflicts_policy
        report = batch_report.build_task_report_before_decoding(
            directory, batch_in_model.names, *policies
        )
        warnings = [
            *plan.resolved_recipe.warnings,
            *batch_report.list_layout_and_class_name_warnings(
                directory, batch_in_model.names, locked.model.name, locked.model.scenario
            ),
            *self._list_repeated_batch_warnings(same, batch_in_model.expected_s),
        ]
        task = create_task_row_with_next_number(
            locked.model, batch, task_id, report, warnings, locked.now
        )
        task.content_turn = repeated_batches.compute_next_content_turn(same, task.content_sha256)
        return task

    def _answer_repeated_batch(self) -> BatchSubmissionResponse[Accepted] | None:
        """Respond to a batch that repeats a task, without storing its archive.

        Return None if there is no such task any more.
        """
        db, spent = self.db, self.upload
        with db.write() as session:
            now = db.now(session)
            # Before all checks: a repeated request gets its first response, whatever has changed.
            replay = idempotency.find_earlier_response(session, self.actor, self.repeat)
            if replay is not None:
                return build_response_to_repeated_request(replay)
            model = find_model(session, self.actor, self.model, lock=True)
            same = repeated_batches.find_tasks_with_same_content(session, model, self.batch.sent)
            response = self._build_repeat_response_or_retry_task(session, model, same, now)
            if response is None:
                return None
            self._store_response(session, response, now)
            if spent is not None:
                complete_uploads.delete_accepted_upload_rows(session, self.actor, spent, now)
                stored_bytes.mark_owner_bytes_outdated(session, spent.owner_id)
            if response.is_new:
                quota.require_added_job_within_limit(
                    session, model.owner_id, self.max_open_jobs, is_locked=spent is not None
                )
        if spent is not None:
            complete_uploads.delete_upload_piece_objects(self.store, spent)
        return response

    def _build_repeat_response_or_retry_task(
        self, session: Session, model: Model, same: Sequence[TaskWithEqualContent], now: float
    ) -> BatchSubmissionResponse[Accepted] | None:
        """Build the response to a batch that repeats a task.

        The caller holds the lock on the model's row. A held task is retried if the request names a
        recipe that differs from that of its job.
        """
        same_task = (
            None if self.batch.again else repeated_batches.choose_task_returned_for_repeat(same)
        )
        if same_task is None:
            return None
        job, is_new = repeated_batches.find_open_or_version_making_job(session, same_task), False
        repeated_json = repeated_batches.repeated_task_to_json(same_task, job)
        if same_task.is_held and self._has_request_other_recipe_than_job(model, job):
            if not can_relearn_task(same_task.task):
                return None  # its images are gone, but the batch has them: learn it as a new task
            override = build_stored_recipe_override(self.catalogue, self.batch.override)
            request = retries.TaskRelearnContext(
                session,
                self.actor,
                self.catalogue,
                model,
                same_task.task,
                job,
                override,
                now,
                self.admission,
            )
            job, is_new = retries.create_relearning_job(request), True
        session.flush()
        response: Accepted = {
            "task": shown_task(session, model, same_task.task),
            "job": shown_job(session, job, model),
            "repeats": repeated_json,
        }
        return BatchSubmissionResponse(response, job.id, is_new=is_new, needs_archive=False)

    def _has_request_other_recipe_than_job(self, model: Model, job: Job) -> bool:
        """Return True if the request gives a recipe that differs from the one of the repeated
        task's job.
        """
        if self.batch.recipe is None:
            return False
        requested = resolve_recipe(
            self.catalogue,
            model.scenario,
            model.recipe,
            self.batch.recipe,
            architecture=model.architecture,
            problem=model.problem,
        )
        return requested.recipe != job.recipe

    def _store_response(
        self, session: Session, done: BatchSubmissionResponse[Any], now: float
    ) -> None:
        """Store the response to the batch for its idempotency key."""
        response = idempotency.IdempotentResponse(done.status, done.headers, done.response)
        idempotency.store_idempotent_response(session, self.actor, self.repeat, response, now)
        session.flush()

    def store_and_accept_batch(
        self,
        batch_in_model: BatchPlanForModel,
        key: str,
        add: Add[Answer],
        spent: CompleteUpload | None = None,
    ) -> BatchSubmissionResponse[Answer]:
        """Move the batch's archive into the store, and accept the batch in one transaction.

        Args:
            batch_in_model: the batch in its model.
            key: key of the archive in the store.
            add: function that adds the rows.
            spent: upload whose bytes the archive has; it is removed.

        Raises:
            NotFound, StorageQuotaReached, TooManyRequests, IdempotencyMismatch, IdempotencyInFlight: see
            `submit_as_next_task`. Errors of `add` pass through.
        """
        db, actor, size, owner_id = self.db, self.actor, self.batch.bytes, batch_in_model.owner_id
        # its pieces were counted when they came
        is_counted = spent is not None and spent.owner_id == owner_id
        if not is_counted:
            quota.require_storage_room(db, owner_id, self.max_bytes, size)
        with (
            store_archive_unless_block_fails(
                db, self.store, key, self.batch.path, archives.find_archives_still_in_use
            ),
            db.write() as session,
        ):
            # Tests kill the process here: the archive is stored, and no row names it.
            hit_failpoint("submit-stored")
            replay = idempotency.find_earlier_response(session, actor, self.repeat)
            if replay is not None:
                # No row names this copy of the archive, whose key is new with each request.
                self.store.delete(key)
                return build_response_to_repeated_request(replay)
            # By id, since the name may belong to another model by now.
            locked = _lock_model(session, actor, batch_in_model.model_id)
            model, now = locked.model, locked.now
            done = add(session, locked)
            if spent is not None:
                complete_uploads.delete_accepted_upload_rows(session, actor, spent, now)
            self._store_response(session, done, now)
            if not is_counted:
                quota.add_upload_bytes_or_raise_if_full(
                    session, model.owner_id, self.max_bytes, size if done.needs_archive else 0
                )
            elif not done.needs_archive:
                stored_bytes.mark_owner_bytes_outdated(session, owner_id)
            if done.is_new:
                # In all other cases, a statement above has changed the owner's row already.
                is_locked = not (is_counted and done.needs_archive)
                quota.require_added_job_within_limit(
                    session, model.owner_id, self.max_open_jobs, is_locked=is_locked
                )
        hit_failpoint("submit-committed")
        if not done.needs_archive:
            # A concurrent request has added the task. After a crash here, the sweep removes the
            # archive.
            self.store.delete(key)
        if spent is not None:
            hit_failpoint("upload-spent")
            complete_uploads.delete_upload_piece_objects(self.store, spent)
        return done

    def plan_batch_in_current_model(self) -> BatchPlanForModel:
        """Plan how the model as it is now would learn the batch; for errors see
        `preview_submission`.
        """
        batch_in_model = self._plan_batch_or_none_if_repeated(plans_known=True)
        assert batch_in_model is not None
        return batch_in_model

    def _plan_batch_or_none_if_repeated(self, *, plans_known: bool) -> BatchPlanForModel | None:
        """Plan how the model would learn this batch now, inside a transaction.

        Args:
            plans_known: plan also a batch that repeats a task; otherwise return None for it.
        """
        with self.db.read() as session:
            past = self._read_model_history(session, self.model)
            model = past.model
            repeated_task = (
                None
                if self.batch.again
                else repeated_batches.choose_task_returned_for_repeat(past.same)
            )
            if repeated_task is not None and not plans_known:
                return None
            plan = self.make_recipe_plan(session, past)
            known_names = batch_report.list_known_classes(session, model)
            directory = self.batch.directory
            images = (directory.n_train, past.held_out + directory.n_test)
            expected_s = estimate_batch_job_seconds(session, self.catalogue, model, plan, images)
            row, repeated_json = batch_plan.get_model_column_values(model), None
            if repeated_task is not None:
                job = repeated_batches.find_open_or_version_making_job(session, repeated_task)
                repeated_json = repeated_batches.repeated_task_to_json(repeated_task, job)
        # Outside of a transaction that locks the model, since this may take a second.
        names = compare_class_names(self.batch.directory.classes, known_names)
        return BatchPlanForModel(row, plan, names, expected_s, past.same, repeated_json)

    def _read_model_history(self, session: Session, model: str) -> ModelHistoryForBatch:
        return batch_plan.read_model_history_for_batch(session, self.actor, model, self.batch.sent)

    def make_recipe_plan(self, session: Session, past: ModelHistoryForBatch) -> BatchRecipePlan:
        """Return the recipe with which the model would learn the batch, with all warnings.

        Raises:
            LabelsInvalid, InvalidRecipe, JobTooLarge: see `submit_as_next_task`.
        """
        batch, catalogue, model = self.batch, self.catalogue, past.model
        batch_report.require_batch_classes_known_to_model(model, batch.directory)
        check = partial(self._check_learnable_and_list_warnings, session, past)
        resolved, trials = resolve_batch_recipe(session, catalogue, past, batch, check)
        ahead = describe_next_task_outlook_from_tasks(session, model, past.before.head, past.tasks)
        warnings = [
            *resolved.warnings,
            *batch_report.list_warnings_of_single_class_model(session, model, batch.directory),
            *ahead.missing,
            *ahead.notes,
        ]
        return BatchRecipePlan(ResolvedRecipe(resolved.recipe, warnings), ahead.missing, trials)

    def _check_learnable_and_list_warnings(
        self, session: Session, past: ModelHistoryForBatch, resolved: ResolvedRecipe
    ) -> list[str]:
        """Check that the batch can be learned with a recipe, and return warnings about the recipe."""
        model, recipe = past.model, resolved.recipe
        work = JobTaskAndImageCounts(
            max(1, model.next_task), past.learned + self.batch.directory.n_train
        )
        self.admission.check_job_memory(
            self.catalogue, model.architecture, model.image, recipe, work
        )
        return require_fitting_recipe_and_list_warnings(
            session, self.catalogue, model, past.before, recipe
        )

    def _list_repeated_batch_warnings(
        self, same: Sequence[TaskWithEqualContent], expected_s: float | None
    ) -> list[str]:
        """Return warnings about a batch that repeats a task and is learned all the same."""
        is_relearning_requested, size = self.batch.again, self.batch.bytes
        if (
            not is_relearning_requested
            and repeated_batches.choose_task_returned_for_repeat(same) is not None
        ):
            return []
        return repeated_batches.list_repeated_batch_warnings(
            same, again=is_relearning_requested, size=size, expected_s=expected_s
        )


def _lock_model(session: Session, actor: Actor, model_id: str) -> LockedModel:
    """Lock a model's row, and read with the same statement what else adding a task needs."""
    query = select(
        Model, build_database_time_expression(session), build_model_stopped_condition(Model.id)
    )
    row = read_query_row_for_model(session, actor, model_id, query, lock=True)
    return LockedModel(row[0], float(row[1]), bool(row[2]))
