"""A batch that comes again: the task of its model that has the same content, and the answer that
follows.

Sending again never learns again: after a time-out, from a second machine or by a script that is run
twice the answer is the task that is there. Where nothing is left of the first one, it is learned as
a new task.

A task is known again by the digest of its content (`core.ingest.content`), and by that of its
archive where it was accepted before content had one. Where tasks stand is read under the lock of
the model's row, which a submit holds until its own task is there. The unique key (model, content,
turn) guards that: of two tasks that were made without seeing each other, one is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from core.contract.reports.report import BatchReport, DuplicatesPolicy, Repeats
from core.database.kinds import JobKind
from core.database.tables import Job, Model, Task, Version
from core.ingest.inspect import ArchiveSummary
from core.lineage import wording
from core.lineage.standing import TaskStanding, read_task_standings
from core.tasks import retries

ANSWERS = (TaskStanding.RUNNING, TaskStanding.QUEUED, TaskStanding.LEARNED, TaskStanding.HELD)
"""Standings with which a task answers a batch of the same content, the best first; with others the
batch is learned.
"""


@dataclass(frozen=True)
class BatchIdentity:
    """Identity of a batch in a search for equal tasks: digests, content and policy for equal images."""

    sha256: str
    directory: ArchiveSummary
    duplicates: DuplicatesPolicy


@dataclass(frozen=True)
class TaskWithEqualContent:
    """A task of the model with the same content as a batch, and its standing.

    Attributes:
        is_held: its newest version is held; of one that was skipped too, since its model goes on
            without held ones.
    """

    task: Task
    standing: TaskStanding
    is_held: bool

    @property
    def is_returned_for_repeated_batch(self) -> bool:
        """True if submitting the batch again returns this task."""
        return self.standing in ANSWERS or self.is_held


def find_tasks_with_same_content(
    session: Session, model: Model, batch: BatchIdentity
) -> list[TaskWithEqualContent]:
    """Return a model's tasks with the content of a batch, ranked; the caller holds the lock on the
    model's row.
    """
    # Read again: rows from before the lock may have changed while this request waited for it.
    query = (
        select(Task)
        .where(build_same_content_task_condition(model, batch))
        .execution_options(populate_existing=True)
    )
    return filter_and_rank_equal_tasks(session, model, batch, session.scalars(query).all())


def build_same_content_task_condition(model: Model, batch: BatchIdentity) -> ColumnElement[bool]:
    """Build the SQL condition on a model's tasks that may have the same content as a batch.

    Older tasks have no digest of their content and match by their archive; `filter_and_rank_equal_tasks` then
    removes false matches.
    """
    older = and_(
        Task.content_sha256.is_(None), Task.sha256 == batch.sha256, Task.data_deleted_at.is_(None)
    )
    content = batch.directory.content
    has_content = older if content is None else or_(Task.content_sha256 == content, older)
    return and_(Task.model_id == model.id, has_content)


def filter_and_rank_equal_tasks(
    session: Session, model: Model, batch: BatchIdentity, candidates: Sequence[Task]
) -> list[TaskWithEqualContent]:
    """Drop false matches, and sort the tasks left: first the one to return, then the others from
    the newest.
    """
    # A task without a digest of its content has only the same archive: with other reading
    # options, that archive is another batch.
    tasks = [
        one
        for one in candidates
        if one.content_sha256 is not None or _is_archive_read_by_same_options(one.report, batch)
    ]
    where = read_task_standings(session, model.id, tasks)
    held_numbers = {number for number, standing in where.items() if standing is TaskStanding.HELD}
    held_numbers |= _find_tasks_with_held_version(
        session, model, [n for n, standing in where.items() if standing is TaskStanding.SKIPPED]
    )
    same = [
        TaskWithEqualContent(task, where[task.number], task.number in held_numbers)
        for task in tasks
    ]
    return sorted(same, key=lambda one: (_rank_equal_task(one), -one.task.number))


def _rank_equal_task(same: TaskWithEqualContent) -> int:
    if same.standing in ANSWERS:
        return ANSWERS.index(same.standing)
    # A skipped task with a held version is an answer too, after all others.
    return len(ANSWERS) + (not same.is_returned_for_repeated_batch)


def _find_tasks_with_held_version(
    session: Session, model: Model, numbers: Sequence[int]
) -> set[int]:
    """Return which of the tasks have a held version as their newest one."""
    if not numbers:
        return set()
    mine = Version.model_id == model.id, Version.task_number.in_(numbers)
    rows = session.execute(
        select(Version.task_number, Version.status).where(*mine).order_by(Version.number)
    )
    newest = {number: status for number, status in rows if number is not None}
    return {number for number, status in newest.items() if status == "held"}


def _is_archive_read_by_same_options(report: BatchReport, batch: BatchIdentity) -> bool:
    """Return True if a task's archive was read by the same options as the batch; others may give
    other labels.
    """
    options = report.get("reading", {}).get("options", {})
    was = options, report.get("duplicates_policy", "keep")
    return was == (batch.directory.reading.get("options", {}), batch.duplicates)


def choose_task_returned_for_repeat(
    same: Sequence[TaskWithEqualContent],
) -> TaskWithEqualContent | None:
    """Return the task that answers a repeated batch; None if the batch is learned again."""
    return same[0] if same and same[0].is_returned_for_repeated_batch else None


def find_open_or_version_making_job(session: Session, same: TaskWithEqualContent) -> Job:
    """Return the job that decides what a task is now: the open one, or the one that made its
    version.
    """
    if (
        same.standing in (TaskStanding.QUEUED, TaskStanding.RUNNING)
        and not same.task.belongs_to_adopted_classifier
    ):
        return retries.find_newest_job_of_task(session, same.task)
    if same.task.belongs_to_adopted_classifier:
        measures = Job.model_id == same.task.model_id, Job.kind == str(JobKind.MEASURE)
        ran = Job.archive_sha256 == same.task.sha256
        query = select(Job).where(*measures, ran).order_by(Job.place.desc()).limit(1)
        return session.scalars(query).one()
    query = select(Job).where(Job.task_id == same.task.id, Job.version.is_not(None))
    version_job = session.scalars(query.order_by(Job.place.desc()).limit(1)).first()
    return version_job or retries.find_newest_job_of_task(
        session, same.task
    )  # a twin in a rebased model may have none of its own


def repeated_task_to_json(same: TaskWithEqualContent, job: Job) -> Repeats:
    """Return the task that a batch repeats in the JSON form of the API."""
    return {"task": same.task.number, "standing": str(same.standing), "version": job.version}


def compute_next_content_turn(
    same: Sequence[TaskWithEqualContent], content: str | None
) -> int | None:
    """Return the next number among tasks of the same content (the highest plus 1); None without a
    digest.
    """
    if content is None:
        return None
    positions = (one.task.content_turn for one in same)
    return 1 + max((position for position in positions if position is not None), default=-1)


def remove_task_content_digest(task: Task) -> None:
    """Remove a task's content digest together with its data, so that its batch is not recognised
    any more.
    """
    task.content_sha256 = task.content_turn = None


def list_repeated_batch_warnings(
    same: Sequence[TaskWithEqualContent], *, again: bool, size: int, expected_s: float | None
) -> list[str]:
    """Return warnings about a batch that was sent before and is learned again all the same.

    Args:
        again: the sender asks for that.
        size: of its archive, in bytes.
        expected_s: seconds that its job is expected to take; None: not known.
    """
    if not same:
        return []
    first = same[0]
    name = wording.describe_task_in_words(first.task)
    stands = str(first.standing).replace("_", " ")
    if not again:
        return [f"This batch repeats {name}, which is {stands}: it is learned as a new task."]
    takes = "" if expected_s is None else f" about {expected_s:.0f} s of work and"
    return [
        f"This batch repeats {name}, which is {stands}, and is learned once more as asked. That "
        f"costs{takes} {size:,} "
        "bytes of storage; its images weigh twice in what is kept of them, and every later version "
        "is measured on its held-out images twice."
    ]
