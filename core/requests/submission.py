"""A batch on its way into a model: what it would mean there, and the transaction that accepts it.

A batch is accepted in one transaction (task, queued job with its resolved recipe, event, audit row, idempotency
record) after its archive is safe in the store; a transaction that fails leaves no archive.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import func, select, true
from sqlalchemy import inspect as sql_inspect
from sqlalchemy.orm import Session

from core.db import archives, job_log
from core.db import jobs as job_rows
from core.db.session import Database
from core.db.tables import Job, Model, Task
from core.failpoints import hit
from core.ids import new_id
from core.ingest.inspect import Directory
from core.line import line
from core.line.outlook import outlook
from core.line.standing import Standing
from core.protocol.answers.audit import AuditData
from core.protocol.answers.task import Accepted
from core.protocol.catalogue import Catalogue
from core.protocol.patch import RecipePatch
from core.protocol.report import BatchReport, ConflictsPolicy, DuplicatesPolicy, Report
from core.recipe.resolve import Resolved, resolve
from core.recipe.stored import stored_override
from core.requests import batch_report, idempotency, jobs, quota
from core.requests.actor import Actor, find_model
from core.requests.admission import ANY, Admission, Work
from core.requests.applicability import check_next_task
from core.requests.archive_keeping import kept
from core.requests.audit import record
from core.requests.class_names import Compared, compare
from core.requests.expected_job import find_expected_s
from core.requests.job_answer import shown as shown_job
from core.requests.task_answer import to_json
from core.requests.whole_uploads import Whole, remove, spend
from core.store import Store

Answer = TypeVar("Answer")
Add = Callable[[Session, Model, float], tuple[Answer, Job]]
"""Adds the rows of an accepted batch to a locked model at a time (seconds); returns the answer, and the job."""


@dataclass(frozen=True)
class Batch:
    """An upload that is complete and checked.

    Attributes:
        path: the spooled archive, which is moved into the store.
        sha256: of the archive.
        recipe: override for this batch.
        duplicates_policy: what becomes of equal images, see `core.ingest.equal_images`.
        conflicts_policy: what becomes of a batch with images under two labels, see `core.ingest.contradictions`.
    """

    path: Path
    sha256: str
    bytes: int
    directory: Directory
    name: str | None
    recipe: RecipePatch
    duplicates_policy: DuplicatesPolicy = "keep"
    conflicts_policy: ConflictsPolicy = "reject"


def admit(
    db: Database, actor: Actor, model: str, *, max_open_jobs: int, max_bytes: int, length: int | None
) -> None:
    """Before a body is read: does the model exist, and has its owner room for one more job and these bytes?

    Args:
        max_bytes: that the owner may store; 0: no limit.
        length: of the body in bytes, None when the client did not say.

    Raises:
        NotFound: the caller sees no such model.
        TooManyRequests: the owner has `max_open_jobs` unfinished jobs.
        StorageFull, BodyTooLarge: see `core.requests.quota`.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        quota.require_turn(session, row.owner_id, max_open_jobs)
    quota.require_room(db, row.owner_id, max_bytes, length)


def require_model(db: Database, actor: Actor, model: str) -> None:
    """Raises NotFound where the caller sees no such model."""
    with db.read() as session:
        find_model(session, actor, model)


def read_known_classes(db: Database, actor: Actor, model: str) -> set[str]:
    """The class names that a new batch of the model is compared with. Raises NotFound."""
    with db.read() as session:
        return batch_report.known_classes(session, find_model(session, actor, model))


@dataclass(frozen=True)
class Plan:
    """The recipe of a batch in its model, warnings, and `missing`: a sentence for each task that its version lacks."""

    resolved: Resolved
    missing: list[str]


@dataclass(frozen=True)
class BatchInModel:
    """A batch in its model.

    Attributes:
        row: the model's columns, from which the plan was made.
        names: class names beside the known ones.
        expected_s: seconds that the job is expected to take.
    """

    row: dict[str, Any]
    plan: Plan
    names: Compared
    expected_s: float | None

    @property
    def resolved(self) -> Resolved:
        """The recipe there, and what a person should know about it."""
        return self.plan.resolved

    @property
    def owner_id(self) -> str:
        """Of the model."""
        return str(self.row["owner_id"])

    @property
    def model_id(self) -> str:
        """Of the model: its name may be another one's by now."""
        return str(self.row["id"])


@dataclass(frozen=True)
class _Past:
    """The images of a model's earlier batches, and the first of them with the same bytes: its number and name."""

    learned: int
    held_out: int
    same: tuple[int, str | None] | None


@dataclass(frozen=True)
class Submission:
    """A batch that somebody sends to a model.

    Attributes:
        repeat: its idempotency key, if it has one.
        upload: the upload that the batch came by, if it came in pieces; a task spends it, a check does not.
        max_bytes: that the model's owner may store; 0: no limit.
        max_open_jobs: that the owner may have; 0: no limit.
        admission: how large a job may be.
    """

    db: Database
    store: Store
    catalogue: Catalogue
    actor: Actor
    model: str
    batch: Batch
    repeat: idempotency.Request | None = None
    max_bytes: int = 0
    max_open_jobs: int = 0
    admission: Admission = ANY
    upload: Whole | None = None

    def preview(self) -> Report:
        """What submitting this batch would say, without doing it (`?validate=only`).

        Raises:
            NotFound, LabelsInvalid, InvalidRecipe, JobTooLarge: as `submit`.
        """
        return self.report(self.in_model())

    def report(self, there: BatchInModel) -> Report:
        """What is known of the batch by its names and sizes."""
        batch, found = self.batch, self.batch.directory
        return {
            "valid": True,
            "sha256": batch.sha256,
            "bytes": batch.bytes,
            "media_type": found.media_type,
            "layout": found.layout,
            "classes": found.classes,
            "n_train": found.n_train,
            "n_test": found.n_test,
            "ignored": found.ignored,
            "notes": list(found.notes),
            "report": batch_report.report(
                found, there.names, batch.duplicates_policy, batch.conflicts_policy
            ),
            "checked": batch_report.CHECKED,
            "not_checked": batch_report.not_checked(found),
            "recipe": there.resolved.recipe,
            "warnings": [
                *there.resolved.warnings,
                *batch_report.warnings(found, there.names),
                *batch_report.warn_of_few(found, there.names),
            ],
            "expected_s": there.expected_s,
        }

    def submit(self) -> tuple[Accepted, bool]:
        """Make the batch the model's next task; returns `{task, job}`, and whether it is a replay.

        Raises:
            NotFound: the model is gone, or the upload.
            StorageFull, TooManyRequests: the owner has no room for it, in the store or in the queue.
            LabelsInvalid: a class that the model does not know (data scenario).
            InvalidRecipe: the resolved recipe cannot be used.
            JobTooLarge: the job is beyond what `admission` takes.
            IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
        """
        override = stored_override(self.catalogue, self.batch.recipe)
        task_id = new_id("tsk")
        there = self.in_model()  # fail before bytes move

        def add(session: Session, model: Model, now: float) -> tuple[Accepted, Job]:
            # Planned again only where the model has changed meanwhile, as by another batch: it costs ten statements.
            unchanged = _columns(model) == there.row
            plan = there.plan if unchanged else self.planned(session, model, self._read_past(session, model))
            resolved, found = plan.resolved, self.batch.directory
            policies = self.batch.duplicates_policy, self.batch.conflicts_policy
            report = batch_report.report(found, there.names, *policies)
            warnings = [*resolved.warnings, *batch_report.warnings(found, there.names)]
            task = _task(model, self.batch, task_id, report, warnings, now)
            job = jobs.new_job(model, task, override, resolved.recipe, now)
            job.warnings = plan.missing
            session.add(task)
            session.flush()
            session.add(job)
            session.flush()
            job_rows.made(session, job, now, lines=job_log.lines_of_task(task))
            data: AuditData = {
                "model": model.id,
                "number": task.number,
                "sha256": self.batch.sha256,
                "job": job.id,
            }
            record(session, self.actor, "task.submit", task.id, data, now=now, model=model.id)
            answer: Accepted = {
                "task": to_json(model, task, job, Standing.QUEUED),
                "job": shown_job(session, job, model),
                "expected_s": there.expected_s,
            }
            return answer, job

        return self.commit(there, archive_key(task_id), add, self.upload)

    def commit(
        self, there: BatchInModel, key: str, add: Add[Answer], spent: Whole | None = None
    ) -> tuple[Answer, bool]:
        """Move the archive into the store and accept it in one transaction; returns as `submit`.

        Args:
            there: the batch in its model.
            key: of the archive in the store.
            spent: the upload whose bytes the archive has; it is forgotten.

        Raises: what `submit` says of room and keys, and what `add` raises.
        """
        db, actor, size, owner_id = self.db, self.actor, self.batch.bytes, there.owner_id
        is_counted = spent is not None and spent.owner_id == owner_id  # since its pieces came
        if not is_counted:
            quota.require_room(db, owner_id, self.max_bytes, size)
        with kept(db, self.store, key, self.batch.path, archives.named), db.write() as session:
            hit("submit-stored")
            now = db.now(session)
            replay = idempotency.replayed(session, actor, self.repeat, now)
            if replay is not None:
                self.store.delete(key)
                return cast(Answer, replay.body), True
            model = find_model(session, actor, there.model_id, lock=True)
            answer, job = add(session, model, now)
            if spent is not None:
                spend(session, actor, spent, now)
            headers = {"Location": f"/v1/jobs/{job.id}", "Retry-After": "1"}
            idempotency.remember(session, actor, self.repeat, 202, headers, answer, now)
            session.flush()
            if not is_counted:
                quota.take(session, model.owner_id, self.max_bytes, size)
            quota.take_turn(session, model.owner_id, self.max_open_jobs, is_locked=not is_counted)
        hit("submit-committed")
        if spent is not None:
            hit("upload-spent")
            remove(self.store, spent)
        return answer, False

    def in_model(self) -> BatchInModel:
        """What the batch is in its model as that is now. Raises as `preview`."""
        with self.db.read() as session:
            model = find_model(session, self.actor, self.model)
            past = self._read_past(session, model)
            plan = self.planned(session, model, past)
            known = batch_report.known_classes(session, model)
            found = self.batch.directory
            images = (found.n_train, past.held_out + found.n_test)
            expected_s = find_expected_s(session, self.catalogue, model, plan.resolved.recipe, *images)
            row = _columns(model)
        # Not in a transaction that locks the model: it may take a second.
        return BatchInModel(row, plan, compare(self.batch.directory.classes, known), expected_s)

    def planned(self, session: Session, model: Model, past: _Past) -> Plan:
        """The recipe of the batch, with everything that a person should know about the batch in this model.

        Raises:
            LabelsInvalid, InvalidRecipe, JobTooLarge: as `submit`.
        """
        batch, catalogue = self.batch, self.catalogue
        batch_report.check_classes(model, batch.directory)
        resolved = resolve(
            catalogue, model.scenario, model.recipe, batch.recipe, architecture=model.architecture
        )
        work = Work(max(1, model.next_task), past.learned + batch.directory.n_train)
        self.admission.check_job(catalogue, model.architecture, model.image, resolved.recipe, work)
        head = line.start_of(session, model)
        ahead = outlook(session, model, head)
        warnings = [
            *resolved.warnings,
            *check_next_task(session, catalogue, model, head, resolved.recipe),
            *batch_report.one_class(session, model, batch.directory),
            *_repeats(past.same),
            *ahead.missing,
            *ahead.others,
        ]
        return Plan(Resolved(resolved.recipe, warnings), ahead.missing)

    def _read_past(self, session: Session, model: Model) -> _Past:
        mine = Task.model_id == model.id
        sums = select(func.sum(Task.n_train), func.sum(Task.n_held_out)).where(mine).subquery()
        same = (
            select(Task.number, Task.name)
            .where(mine, Task.sha256 == self.batch.sha256)
            .order_by(Task.number)
            .limit(1)
            .subquery()
        )
        query = select(*sums.c, *same.c).select_from(sums.outerjoin(same, true()))
        learned, held_out, number, name = session.execute(query).one()
        # PostgreSQL gives a sum as a Decimal.
        return _Past(int(learned or 0), int(held_out or 0), None if number is None else (number, name))


def _columns(model: Model) -> dict[str, Any]:
    return {column.key: getattr(model, column.key) for column in sql_inspect(Model).column_attrs}


def archive_key(name: str) -> str:
    """The key of an archive in the store."""
    return f"{archives.PREFIX}{name}"


def _task(
    row: Model, batch: Batch, task_id: str, report: BatchReport, warnings: list[str], now: float
) -> Task:
    number = row.next_task
    row.next_task += 1
    found = batch.directory
    return Task(
        id=task_id,
        model_id=row.id,
        number=number,
        name=batch.name,
        sha256=batch.sha256,
        bytes=batch.bytes,
        archive_key=archive_key(task_id),
        media_type=found.media_type,
        classes=found.classes,
        n_train=found.n_train if found.has_test else None,
        n_held_out=found.n_test if found.has_test else None,
        report=report,
        train_sha256=None,
        held_out_sha256=None,
        train_deleted_at=None,
        held_out_deleted_at=None,
        data_deleted_at=None,
        warnings=warnings,
        created_at=now,
    )


def _repeats(same: tuple[int, str | None] | None) -> list[str]:
    """A warning where the same bytes are a task of the model already."""
    if same is None:
        return []
    number, name = same
    called = f" ({name})" if name else ""
    return [f"This batch repeats task {number}{called}: the same bytes were uploaded before."]
