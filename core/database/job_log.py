"""A job's log: lines that tell a person what happened to a batch, and why.

Every line is written in the transaction of the event it describes, so no line is missing or untrue.
Lines about changes of a job's state are made here; lines about decoding and learning are made in
`core.execution` and `core.publishing`.
"""

from typing import Literal

from sqlalchemy.orm import Session

from core.contract.responses.event import LogData, StateData
from core.database.states import JobAction, JobState
from core.database.tables import Job, StoredJobEvent, Task
from core.text.counts import format_count_with_noun

Level = Literal["info", "warning", "error"]
Line = tuple[Level, str]


def add_job_log_line(session: Session, job_id: str, log_line: Line, now: float) -> None:
    """Add a line to a job's log, in the caller's transaction."""
    session.add(
        StoredJobEvent(job_id=job_id, type="log", data=build_job_log_event_data(log_line), at=now)
    )


def build_first_log_lines(task: Task) -> list[Line]:
    """Return the first lines of a job's log, about the submitted batch and its warnings."""
    named = f" ({task.name})" if task.name else ""
    counts_text = _format_image_and_class_counts(sum(task.classes.values()), len(task.classes))
    accepted = (
        f"Accepted as task {task.number}{named}: {counts_text} by their names, "
        f"{task.bytes:,} bytes."
    )
    return [("info", accepted), *(("warning", str(text)) for text in task.warnings)]


def build_validation_job_log_line(job: Job, images: int, classes: int) -> Line:
    """Return the first log line of a job that only checks a batch."""
    counts_text = _format_image_and_class_counts(images, classes)
    text = (
        f"Accepted to be checked: {counts_text} by their names, {job.archive_bytes:,} bytes; "
        f"nothing is learned."
    )
    return ("info", text)


def build_job_log_event_data(log_line: Line) -> LogData:
    """Return a line of a job's log in the form of an event's data."""
    level, message = log_line
    return {"level": level, "message": message}


def _format_image_and_class_counts(images: int, classes: int) -> str:
    return f"{format_count_with_noun(images, 'image')} of {format_count_with_noun(classes, 'class', 'classes')}"


def build_job_state_log_line(
    job: Job, before: JobState, action: JobAction, data: StateData
) -> Line | None:
    """Return the job log's line for a change of the job's state.

    Return None where the caller logs more itself (decoded, published).

    Args:
        job: the job in its new state.
        before: former state.
        data: data of the event: `attempt`, `reason`, `strikes`, `error`.
    """
    reason = str(data.get("reason", "")).rstrip(".")
    state = JobState(job.state)
    if state in (JobState.VALIDATING, JobState.RUNNING):
        # The line about decoding, which `core.execution` writes, says it already.
        if before is not JobState.QUEUED:
            return None
        if job.task_id is None:
            return "info", f"Attempt {job.attempt} began."
        first = (
            "the archive is decoded first"
            if state is JobState.VALIDATING
            else "the images are decoded already"
        )
        return "info", f"Attempt {job.attempt} began; {first}."
    if state is JobState.QUEUED:
        return _build_requeued_job_log_line(action, reason, int(data.get("strikes", 0)))
    if state in (JobState.REJECTED, JobState.FAILED):
        error = data.get("error")
        detail = (error["detail"] if error else "") or reason
        return "error", f"{'Rejected' if state is JobState.REJECTED else 'Failed'}: {detail}"
    because = f": {reason}" if reason else ""
    # A job outside of the lineage has no place, and nothing waits for it.
    if state is JobState.PAUSED and job.place is None:
        return "info", "Paused."
    ended = {
        JobState.PAUSING: "A pause was asked for: the work stops at its next step, with a snapshot."
        if job.task_id is not None
        else "A pause was asked for: the work stops, and begins again when it is resumed.",
        JobState.PAUSED: "Paused: the job keeps its place, and later jobs of the model wait.",
        JobState.CHOOSING: "All trials are measured: the job waits until a person chooses one, and "
        "keeps its place.",
        JobState.CANCELLING: f"A cancel was asked for{because}.",
        JobState.CANCELLED: f"Cancelled{because}.",
    }
    return ("info", ended[state]) if state in ended else None


def _build_requeued_job_log_line(action: JobAction, reason: str, strikes: int) -> Line:
    """Return the log line for a job that waits in the queue again."""
    if action is JobAction.RETRY:
        return "info", "A retry was asked for: the job waits for a worker."
    if action is JobAction.RESUME:
        return "info", "Resumed: the job waits for a worker."
    if action is JobAction.CHOOSE:
        return "info", f"{reason or 'A trial was chosen'}: the job waits for a worker."
    if action is JobAction.RELEASE:
        return (
            "info",
            f"The attempt stopped in order ({reason or 'the worker shuts down'}); another one "
            f"follows.",
        )
    strikes_text = f" {strikes} in a row without a new snapshot so far." if strikes else ""
    return "warning", f"The attempt was lost: {reason}. Another one follows.{strikes_text}"
