"""Texts of a model's tasks and jobs without the paths of removed images.

Warnings and log lines name images that have two labels or could not be read. Reports are edited by
`core.edits.reports`.
"""

import re
from collections.abc import Collection
from typing import TypeVar, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.database.tables import Job, StoredJobEvent, Task

Value = TypeVar("Value")
REMOVED = "(removed)"
_SHOWN = 100
"""Characters of a path that a text has at most; its end is kept (`core.execution.batch_log`)."""


def redact_deleted_image_paths_in_stored_texts(
    session: Session, model_id: str, paths: Collection[str]
) -> None:
    """Remove the paths of deleted images from warnings, log lines and checks of a model's
    batches.
    """
    if not paths:
        return
    pattern = _build_image_path_regex(paths)
    for task in session.scalars(select(Task).where(Task.model_id == model_id)):
        task.warnings = _redact_image_paths_in_json(task.warnings, pattern)
    for job in session.scalars(select(Job).where(Job.model_id == model_id)):
        job.warnings = _redact_image_paths_in_json(job.warnings, pattern)
        job.report = _redact_image_paths_in_json(job.report, pattern)
        job.error = _redact_image_paths_in_json(job.error, pattern)
    jobs = select(Job.id).where(Job.model_id == model_id)
    for event in session.scalars(select(StoredJobEvent).where(StoredJobEvent.job_id.in_(jobs))):
        event.data = _redact_image_paths_in_json(event.data, pattern)


def _build_image_path_regex(paths: Collection[str]) -> re.Pattern[str]:
    """Build a regular expression that matches any of these paths whole, the longest first."""
    shown = {path[-_SHOWN:] for path in paths} | set(paths)
    listed = "|".join(re.escape(path) for path in sorted(shown, key=len, reverse=True))
    # Another path may end with one of these.
    return re.compile(rf"(?<![\w/.-])(?:{listed})(?![\w/-])")


def _redact_image_paths_in_json(value: Value, pattern: re.Pattern[str]) -> Value:
    """Replace image paths inside a JSON value by `REMOVED`; return the value itself if it has
    none.
    """
    replaced = _redact_image_paths_in_value(value, pattern)
    # A new object for an unchanged column would be written.
    return value if replaced == value else cast(Value, replaced)


def _redact_image_paths_in_value(value: object, pattern: re.Pattern[str]) -> object:
    if isinstance(value, str):
        return pattern.sub(REMOVED, value)
    if isinstance(value, dict):
        return {name: _redact_image_paths_in_value(each, pattern) for name, each in value.items()}
    if isinstance(value, list):
        return [_redact_image_paths_in_value(each, pattern) for each in value]
    return value
