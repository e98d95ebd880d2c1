"""Repeated batches: find the task of a model with the same content, and decide if it is the
response.

A batch that is sent again is not learned again. After a time-out, from a second machine, or by a
script that runs twice, the response is the existing task. If nothing is left of the first task, the
batch is learned as a new one.

Tasks are compared by the digest of their content (`core.ingest.content`), or by that of their
archive if they were accepted before content digests existed. Standings are read under the lock of
the model's row, which a submission holds until its own task is added. The unique key (model,
content, turn) is a second safeguard: of two tasks added without seeing each other, one is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from core.db.tables import Job, Model, Task, Version
from core.ingest.inspect import Directory
from core.line import words
from core.line.standing import Standing, standings
from core.protocol.report import BatchReport, DuplicatesPolicy, Repeats
from core.requests import retries

ANSWERS = (Standing.RUNNING, Standing.QUEUED, Standing.LEARNED, Standing.HELD)
"""Standings in which a task is the response to a batch of the same content, best first.

In others the batch is learned.
"""


@dataclass(frozen=True)
class Sent:
    """A batch to look for: digest of its archive, its content, and its policy for equal images."""

    sha256: str
    directory: Directory
    duplicates: DuplicatesPolicy


@dataclass(frozen=True)
class Same:
    """A task with the same content, and its standing.

    Attributes:
        is_held: True if its newest version is held; this includes skipped tasks, since their model
            goes on without held versions.
    """

    task: Task
    standing: Standing
    is_held: bool

    @property
    def is_answer(self) -> bool:
        """True if this task is the response to the batch."""
        return self.standing in ANSWERS or self.is_held


def find_same(session: Session, model: Model, sent: Sent) -> list[Same]:
    """Return the tasks of a model with the content of a batch, ranked.

    The caller holds the lock on the model's row.
    """
    query = select(Task).where(is_same(model, sent)).execution_options(populate_existing=True)
    return ranked(session, model, sent, session.scalars(query).all())


def is_same(model: Model, sent: Sent) -> ColumnElement[bool]:
    """Return the SQL condition for tasks of a model with the content of a batch.

    It may match too many older tasks; `ranked` removes those.
    """
    older = and_(Task.content_sha256.is_(None), Task.sha256 == sent.sha256, Task.data_deleted_at.is_(None))
    content = sent.directory.content
    same_content = older if content is None else or_(Task.content_sha256 == content, older)
    return and_(Task.model_id == model.id, same_content)


def ranked(session: Session, model: Model, sent: Sent, found: Sequence[Task]) -> list[Same]:
    """Return the matching tasks with their standings: the possible response first, others from the
    newest on.
    """
    found = [one for one in found if one.content_sha256 is not None or _is_read_alike(one.report, sent)]
    where = standings(session, model.id, found)
    held_numbers = {number for number, standing in where.items() if standing is Standing.HELD}
    held_numbers |= _held_versions(
        session, model, [n for n, standing in where.items() if standing is Standing.SKIPPED]
    )
    same = [Same(task, where[task.number], task.number in held_numbers) for task in found]
    return sorted(same, key=lambda one: (_rank(one), -one.task.number))


def _rank(same: Same) -> int:
    """Return the position of a task in the ranking, from 0 for the best."""
    if same.standing in ANSWERS:
        return ANSWERS.index(same.standing)
    return len(ANSWERS) + (not same.is_answer)


def _held_versions(session: Session, model: Model, numbers: Sequence[int]) -> set[int]:
    """Return the numbers of those tasks whose newest version is held."""
    if not numbers:
        return set()
    mine = Version.model_id == model.id, Version.task_number.in_(numbers)
    rows = session.execute(select(Version.task_number, Version.status).where(*mine).order_by(Version.number))
    newest = {number: status for number, status in rows if number is not None}
    return {number for number, status in newest.items() if status == "held"}


def _is_read_alike(report: BatchReport, sent: Sent) -> bool:
    """Return True if an archive was read with the same options.

    Other options may give other labels.
    """
    options = report.get("reading", {}).get("options", {})
    earlier = options, report.get("duplicates_policy", "keep")
    return earlier == (sent.directory.reading.get("options", {}), sent.duplicates)


def answer_of(same: Sequence[Same]) -> Same | None:
    """Return the task that is the response to a batch, or None if the batch is to be learned."""
    return same[0] if same and same[0].is_answer else None


def job_of(session: Session, same: Same) -> Job:
    """Return the job under way for a task, or the job that made its version."""
    if same.standing in (Standing.QUEUED, Standing.RUNNING):
        return retries.newest(session, same.task)
    query = select(Job).where(Job.task_id == same.task.id, Job.version.is_not(None))
    job = session.scalars(query.order_by(Job.place.desc()).limit(1)).first()
    # a task copied by a rebase may have no such job
    return job or retries.newest(session, same.task)


def to_json(same: Same, job: Job) -> Repeats:
    """Return the repeated task as the response states it."""
    return {"task": same.task.number, "standing": str(same.standing), "version": job.version}


def next_turn(same: Sequence[Same], content: str | None) -> int | None:
    """Return the number of a new task among those with the same content, from 0.

    Return None without a content digest.
    """
    if content is None:
        return None
    numbers = (one.task.content_turn for one in same)
    return 1 + max((number for number in numbers if number is not None), default=-1)


def forget(task: Task) -> None:
    """Exclude a task from later comparisons, since its data is deleted."""
    task.content_sha256 = task.content_turn = None


def warn_of(same: Sequence[Same], *, again: bool, size: int, expected_s: float | None) -> list[str]:
    """Return warnings about a batch that was sent before and is learned all the same.

    Args:
        same: earlier tasks with the same content, the best first.
        again: True if the request asks for learning it again.
        size: bytes of its archive.
        expected_s: expected seconds of its job; None if unknown.
    """
    if not same:
        return []
    first = same[0]
    name = words.called(first.task)
    stands = str(first.standing).replace("_", " ")
    if not again:
        return [f"This batch repeats {name}, which is {stands}: it is learned as a new task."]
    takes = "" if expected_s is None else f" about {expected_s:.0f} s of work and"
    return [
        f"This batch repeats {name}, which is {stands}, and is learned once more as asked. That costs{takes} {size:,} "
        "bytes of storage; its images weigh twice in what is kept of them, and every later version is measured on its "
        "held-out images twice."
    ]
