"""A batch on its way into a model: what it would mean there, and the transaction that accepts it.

A batch that comes again is answered with the task that is there (`core.requests.repeats`). Any other is accepted in one
transaction (task, queued job with its resolved recipe, event, audit row, idempotency
record) after its archive is safe in the store; a transaction that fails leaves no archive.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from sqlalchemy import func, select
from sqlalchemy import inspect as sql_inspect
from sqlalchemy.orm import Session

from core.db import archives, job_log, stored_bytes
from core.db import jobs as job_rows
from core.db.session import Database
from core.db.tables import Job, Model, Task
from core.failpoints import hit
from core.ids import new_id
from core.ingest.inspect import Directory
from core.line import line
from core.line.outlook import outlook
from core.line.standing import Standing
from core.line.words import can_relearn
from core.protocol.answers.audit import AuditData
from core.protocol.answers.task import Accepted
from core.protocol.catalogue import Catalogue
from core.protocol.patch import RecipePatch
from core.protocol.report import BatchReport, ConflictsPolicy, DuplicatesPolicy, Repeats, Report
from core.recipe.resolve import Resolved, resolve
from core.recipe.stored import stored_override
from core.requests import batch_report, idempotency, jobs, quota, repeats, retries
from core.requests.actor import Actor, find_model
from core.requests.admission import ANY, Admission, Work
from core.requests.applicability import check_next_task
from core.requests.archive_keeping import kept
from core.requests.audit import record
from core.requests.class_names import Compared, compare
from core.requests.expected_job import find_expected_s
from core.requests.job_answer import shown as shown_job
from core.requests.task_answer import shown as shown_task
from core.requests.task_answer import to_json
from core.requests.whole_uploads import Whole, remove, spend
from core.store import Store

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Done(Generic[Answer]):
    """A batch that is answered.

    Attributes:
        job: its id.
        is_new: there is a job that was not there before.
        is_replay: the answer repeats an earlier one to the same idempotency key.
        needs_archive: what was added names the archive in the store.
    """

    answer: Answer
    job: str
    is_new: bool = True
    is_replay: bool = False
    needs_archive: bool = True

    @property
    def status(self) -> int:
        """Of HTTP: 202 for work that is accepted, 200 where all of it was there already."""
        return 202 if self.is_new else 200

    @property
    def headers(self) -> dict[str, str]:
        """Where its job is, and when to look."""
        return {"Location": f"/v1/jobs/{self.job}", **({"Retry-After": "1"} if self.is_new else {})}


Add = Callable[[Session, Model, float], Done[Answer]]
"""Adds the rows of an accepted batch to a locked model at a time (seconds)."""


@dataclass(frozen=True)
class Batch:
    """An upload that is complete and checked.

    Attributes:
        path: the spooled archive, which is moved into the store.
        sha256: of the archive.
        recipe: override for this batch; None: its sender says nothing of it.
        duplicates_policy: what becomes of equal images, see `core.ingest.equal_images`.
        conflicts_policy: what becomes of a batch with images under two labels, see `core.ingest.contradictions`.
        again: learn it also where the model has a task of the same content.
    """

    path: Path
    sha256: str
    bytes: int
    directory: Directory
    name: str | None
    recipe: RecipePatch | None
    duplicates_policy: DuplicatesPolicy = "keep"
    conflicts_policy: ConflictsPolicy = "reject"
    again: bool = False

    @property
    def override(self) -> RecipePatch:
        """The recipe override; that of a sender who says nothing is empty."""
        return self.recipe or {}

    @property
    def sent(self) -> repeats.Sent:
        """What it is looked for by, among the tasks that are there."""
        return repeats.Sent(self.sha256, self.directory, self.duplicates_policy)


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
        same: the tasks that have the same content.
        repeats: the task that it would be answered with; None: it would be learned.
    """

    row: dict[str, Any]
    plan: Plan
    names: Compared
    expected_s: float | None
    same: list[repeats.Same]
    repeats: Repeats | None

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
    """The images of a model's earlier batches, and the tasks among them with the same content."""

    learned: int
    held_out: int
    same: list[repeats.Same]


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
        report: Report = {
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
                *self._warn_of_repeats(there.same, there.expected_s),
            ],
            "expected_s": there.expected_s,
        }
        if there.repeats is not None:
            report["repeats"] = there.repeats
        return report

    def submit(self) -> Done[Accepted]:
        """Make the batch the model's next task, unless there is one of the same content: see `core.requests.repeats`.

        Raises:
            NotFound: the model is gone, or the upload.
            StorageFull, TooManyRequests: the owner has no room for it, in the store or in the queue.
            LabelsInvalid: a class that the model does not know (data scenario).
            InvalidRecipe: the resolved recipe cannot be used.
            JobTooLarge: the job is beyond what `admission` takes.
            IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
        """
        override = stored_override(self.catalogue, self.batch.override)
        task_id = new_id("tsk")
        found = self._look(plans_known=False)  # fail before bytes move
        if found is None and (known := self._answer_known()) is not None:
            return known
        there = found or self.in_model()

        def add(session: Session, model: Model, now: float) -> Done[Accepted]:
            same = repeats.find_same(session, model, self.batch.sent)
            repeated = self._repeated(session, model, same, now)
            if repeated is not None:
                return repeated
            # Planned again only where the model has changed meanwhile, as by another batch: it costs ten statements.
            unchanged = _columns(model) == there.row
            plan = there.plan if unchanged else self.planned(session, model, self._read_past(session, model))
            resolved, found = plan.resolved, self.batch.directory
            policies = self.batch.duplicates_policy, self.batch.conflicts_policy
            report = batch_report.report(found, there.names, *policies)
            again = self._warn_of_repeats(same, there.expected_s)
            warnings = [*resolved.warnings, *batch_report.warnings(found, there.names), *again]
            task = _task(model, self.batch, task_id, report, warnings, now)
            task.content_turn = repeats.next_turn(same, task.content_sha256)
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
            return Done(answer, job.id)

        return self.commit(there, archive_key(task_id), add, self.upload)

    def _answer_known(self) -> Done[Accepted] | None:
        """Answer a batch that repeats a task, without its archive; None: there is no such task any more."""
        db, spent = self.db, self.upload
        with db.write() as session:
            now = db.now(session)
            replay = idempotency.replayed(session, self.actor, self.repeat, now)
            if replay is not None:
                return _replayed(replay)
            model = find_model(session, self.actor, self.model, lock=True)
            same = repeats.find_same(session, model, self.batch.sent)
            done = self._repeated(session, model, same, now)
            if done is None:
                return None
            self._remember(session, done, now)
            if spent is not None:
                spend(session, self.actor, spent, now)
                stored_bytes.outdate(session, spent.owner_id)
            if done.is_new:
                quota.take_turn(session, model.owner_id, self.max_open_jobs, is_locked=spent is not None)
        if spent is not None:
            remove(self.store, spent)
        return done

    def _repeated(
        self, session: Session, model: Model, same: Sequence[repeats.Same], now: float
    ) -> Done[Accepted] | None:
        """The answer to a batch that a task of the same content stands for; the caller holds the model's row.

        A held task is retried where the sender names a recipe that is another one than its job had.
        """
        known = None if self.batch.again else repeats.answer_of(same)
        if known is None:
            return None
        job, is_new = repeats.job_of(session, known), False
        said = repeats.to_json(known, job)
        if known.is_held and self._is_other_recipe(model, job):
            if not can_relearn(known.task):
                return None  # its images are gone, and here they are
            override = stored_override(self.catalogue, self.batch.override)
            asked = retries.Again(
                session, self.actor, self.catalogue, model, known.task, job, override, now, self.admission
            )
            job, is_new = retries.learn_again(asked), True
        session.flush()
        answer: Accepted = {
            "task": shown_task(session, model, known.task),
            "job": shown_job(session, job, model),
            "repeats": said,
        }
        return Done(answer, job.id, is_new=is_new, needs_archive=False)

    def _is_other_recipe(self, model: Model, job: Job) -> bool:
        """Whether the sender names a recipe, and it comes to another one than that of a job."""
        if self.batch.recipe is None:
            return False
        asked = resolve(
            self.catalogue, model.scenario, model.recipe, self.batch.recipe, architecture=model.architecture
        )
        return asked.recipe != job.recipe

    def _remember(self, session: Session, done: Done[Any], now: float) -> None:
        idempotency.remember(session, self.actor, self.repeat, done.status, done.headers, done.answer, now)
        session.flush()

    def commit(
        self, there: BatchInModel, key: str, add: Add[Answer], spent: Whole | None = None
    ) -> Done[Answer]:
        """Move the archive into the store and accept it in one transaction.

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
                return _replayed(replay)
            model = find_model(session, actor, there.model_id, lock=True)
            done = add(session, model, now)
            if spent is not None:
                spend(session, actor, spent, now)
            self._remember(session, done, now)
            if not is_counted:
                quota.take(session, model.owner_id, self.max_bytes, size if done.needs_archive else 0)
            elif not done.needs_archive:
                stored_bytes.outdate(session, owner_id)
            if done.is_new:
                is_locked = not (is_counted and done.needs_archive)
                quota.take_turn(session, model.owner_id, self.max_open_jobs, is_locked=is_locked)
        hit("submit-committed")
        if not done.needs_archive:
            self.store.delete(key)  # a faster request has made the task; what a crash leaves is the sweep's
        if spent is not None:
            hit("upload-spent")
            remove(self.store, spent)
        return done

    def in_model(self) -> BatchInModel:
        """What the batch is in its model as that is now. Raises as `preview`."""
        found = self._look(plans_known=True)
        assert found is not None
        return found

    def _look(self, *, plans_known: bool) -> BatchInModel | None:
        """The same; None where a task answers the batch, and it is to be planned only if none does."""
        with self.db.read() as session:
            model = find_model(session, self.actor, self.model)
            past = self._read_past(session, model)
            answered = None if self.batch.again else repeats.answer_of(past.same)
            if answered is not None and not plans_known:
                return None
            plan = self.planned(session, model, past)
            known = batch_report.known_classes(session, model)
            found = self.batch.directory
            images = (found.n_train, past.held_out + found.n_test)
            expected_s = find_expected_s(session, self.catalogue, model, plan.resolved.recipe, *images)
            row = _columns(model)
            said = None
            if answered is not None:
                said = repeats.to_json(answered, repeats.job_of(session, answered))
        # Not in a transaction that locks the model: it may take a second.
        names = compare(self.batch.directory.classes, known)
        return BatchInModel(row, plan, names, expected_s, past.same, said)

    def planned(self, session: Session, model: Model, past: _Past) -> Plan:
        """The recipe of the batch, with everything that a person should know about the batch in this model.

        Raises:
            LabelsInvalid, InvalidRecipe, JobTooLarge: as `submit`.
        """
        batch, catalogue = self.batch, self.catalogue
        batch_report.check_classes(model, batch.directory)
        resolved = resolve(
            catalogue, model.scenario, model.recipe, batch.override, architecture=model.architecture
        )
        work = Work(max(1, model.next_task), past.learned + batch.directory.n_train)
        self.admission.check_job(catalogue, model.architecture, model.image, resolved.recipe, work)
        head = line.start_of(session, model)
        ahead = outlook(session, model, head)
        warnings = [
            *resolved.warnings,
            *check_next_task(session, catalogue, model, head, resolved.recipe),
            *batch_report.one_class(session, model, batch.directory),
            *ahead.missing,
            *ahead.others,
        ]
        return Plan(Resolved(resolved.recipe, warnings), ahead.missing)

    def _read_past(self, session: Session, model: Model) -> _Past:
        mine = Task.model_id == model.id
        sums = select(func.sum(Task.n_train), func.sum(Task.n_held_out)).where(mine).subquery()
        has_same = repeats.is_same(model, self.batch.sent)
        rows = session.execute(select(*sums.c, Task).select_from(sums.outerjoin(Task, has_same))).all()
        same = [row[2] for row in rows if row[2] is not None]
        # PostgreSQL gives a sum as a Decimal.
        learned, held_out = int(rows[0][0] or 0), int(rows[0][1] or 0)
        return _Past(learned, held_out, repeats.ranked(session, model, self.batch.sent, same))

    def _warn_of_repeats(self, same: Sequence[repeats.Same], expected_s: float | None) -> list[str]:
        again, size = self.batch.again, self.batch.bytes
        if not again and repeats.answer_of(same) is not None:
            return []
        return repeats.warn_of(same, again=again, size=size, expected_s=expected_s)


def _replayed(replay: idempotency.Replay) -> Done[Any]:
    """The first answer again."""
    job = replay.headers.get("Location", "").rpartition("/")[2]
    return Done(replay.body, job, is_new=replay.status == 202, is_replay=True)


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
        content_sha256=found.content,
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
