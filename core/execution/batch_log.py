"""Log lines about a job's batch: what was decoded, and what was left out and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from core.database import job_log
from core.database.job_log import Line
from core.ingest.ingest import IngestedBatch
from core.text.counts import format_count_with_noun

EXAMPLES = 3
"""Maximum number of rejected images named in the log; the task's report has more."""
# Each is a line of the log; the task's report has all of them.
MAX_NOTES = 10
MAX_PATH = 100
"""Maximum number of characters of a path; its end is kept, since that is the most specific."""


def build_batch_decoding_log_lines(batch: IngestedBatch) -> list[Line]:
    """Build log lines about a decoded batch: images to learn, rejected images, and warnings."""
    total = batch.n_train + batch.n_held_out + batch.n_selection
    images = format_count_with_noun(total, "image")
    content = f"{images} of {format_count_with_noun(len(batch.classes), 'class', 'classes')}"
    held_out = (
        f"{batch.n_held_out:,} held out to measure"
        if batch.n_held_out
        else "none held out to measure"
    )
    aside = f", {batch.n_selection:,} set aside to compare trials" if batch.n_selection else ""
    text = f"Decoded {content}: {batch.n_train:,} to learn from, {held_out}{aside}."
    summary: Line = ("info", text)
    return [
        summary,
        *build_batch_report_log_lines(batch.report),
        *(("warning", text) for text in batch.warnings),
    ]


def build_batch_report_log_lines(report: Mapping[str, Any]) -> list[Line]:
    """Build log lines about the rejected and ignored images of a batch."""
    log_lines: list[Line] = []
    count = int(report.get("rejected_count") or 0)
    if count:
        examples = _format_rejected_image_examples(report.get("rejected") or [], count)
        log_lines.append(
            ("warning", f"{format_count_with_noun(count, 'image')} rejected: {examples}.")
        )
    if ignored := int(report.get("ignored") or 0):
        log_lines.append(
            ("info", f"{format_count_with_noun(ignored, 'file')} ignored: not an image of a class.")
        )
    if duplicates := int(report.get("duplicates") or 0):
        text = "image repeats another one" if duplicates == 1 else "images repeat others"
        log_lines.append(("info", f"{duplicates:,} {text} of the batch, byte for byte."))
    if alike := int(report.get("near_conflicts_count") or 0):
        text = "image looks like one" if alike == 1 else "images look like others"
        log_lines.append(("info", f"{alike:,} {text} under another label; see the task's report."))
    log_lines += [
        ("info", _format_as_sentence(str(note)))
        for note in list(report.get("notes") or [])[:MAX_NOTES]
    ]
    return log_lines


def add_batch_report_to_job_log(
    session: Session, job_id: str, report: Mapping[str, Any], now: float
) -> None:
    """Write the lines of a batch report to the job's log, in the caller's transaction."""
    for log_line in build_batch_report_log_lines(report):
        job_log.add_job_log_line(session, job_id, log_line, now)


def _format_rejected_image_examples(rejected: Sequence[Mapping[str, Any]], count: int) -> str:
    """Format the first few rejected images with their reasons."""
    named = [f"{str(each['path'])[-MAX_PATH:]} ({each['reason']})" for each in rejected[:EXAMPLES]]
    more = count - len(named)
    if more:
        named.append(
            f"and {more:,} more, see the task's report" if named else "see the task's report"
        )
    return "; ".join(named)


def _format_as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
