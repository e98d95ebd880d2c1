"""Rows that an edit changes, in the transaction that publishes its version."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from core.contract.document import JsonObject
from core.contract.edit import (
    EditResult,
    EditUndoRecord,
    MatrixCellBeforeEdit,
    TaskReportBeforeEdit,
    TaskStateBeforeOrAfterEdit,
)
from core.contract.reports.report import BatchReport
from core.database.tables import (
    ClassAlias,
    Edit,
    Job,
    Model,
    Task,
    TaskFileBeforeEdit,
    VersionTaskResult,
)
from core.edits.listing import delete_reused_class_aliases
from core.edits.redaction import redact_deleted_image_paths_in_stored_texts
from core.edits.reports import EditChangesForDataReports, build_batch_report_after_edit
from core.errors import Invalid
from core.lineage.lineage import DAY_S
from core.lineage.standing import TaskStanding, set_task_standing
from core.retention.retained_predictions import clear_prediction_digests_and_keys

FILE = "edit.json"
"""File of the result's folder with an `EditResult`."""
STORED = "edited"
"""Folder of the result's folder with the new files of the edited tasks, by digest."""
_KINDS = ("train", "held_out", "traces")


def read_edit_result(folder: Path) -> EditResult | None:
    """Read the result file of an edit job; None for a job that made no edit."""
    path = folder / FILE
    return EditResult.from_json(json.loads(path.read_text())) if path.is_file() else None


def read_edited_task_numbers(session: Session, job_id: str) -> set[int]:
    """Read from a job's result the numbers of the tasks that it edits; empty if it makes no edit.

    Predictions of other versions on them belong to the former images.
    """
    return set(session.scalar(select(Edit.tasks).where(Edit.job_id == job_id)) or [])


def list_digests_of_edited_files(result: EditResult) -> list[str]:
    """Return the digests of the new data files of the edited tasks."""
    return [
        digest for task in result.after for _, digest in _iterate_file_digests_of_edited_task(task)
    ]


def list_digests_of_files_before_edit(result: EditResult) -> set[str]:
    """Return the digests of the data files that the edited tasks had before the edit."""
    return {
        digest for task in result.before for _, digest in _iterate_file_digests_of_edited_task(task)
    }


def store_finished_edit_outcome(
    session: Session, model: Model, job: Job, result: EditResult, number: int, now: float
) -> int:
    """Store the outcome of an edit job: write edited tasks, recount earlier results, mark the edit
    as made.

    Args:
        number: number of its version.

    Returns:
        Bytes of the new files.

    Raises:
        Invalid: a task or the lineage has changed since the job began.
    """
    if model.head != job.parent_version:
        raise Invalid("The line was moved while the edit was made. Send it again.")
    edit = session.scalars(select(Edit).where(Edit.job_id == job.id).with_for_update()).one()
    until = now + model.training_data_days * DAY_S if result.can_undo else None
    size = 0
    for before, after in zip(result.before, result.after, strict=True):
        task = _lock_unchanged_task_row(session, model, before)
        size += sum(
            after.bytes.get(kind, 0) for kind, _ in _iterate_file_digests_of_edited_task(after)
        )
        if until is not None:
            _retain_task_files_before_edit(session, edit, task, before, after, until)
        write_journal_state_to_task_row(task, after)
        if not after.n_train and task.number not in result.taught:
            _discard_task_emptied_by_edit(session, task, now)
    former = [
        _replace_matrix_cell_counts(session, model, cell, keep_answers=False)
        for cell in result.cells
    ]
    reports = _update_data_reports_after_edit(session, model, result)
    redact_deleted_image_paths_in_stored_texts(session, model.id, result.removed_paths)
    _record_class_aliases(session, model, edit, result, now)
    edit.version, edit.undo_until = number, until
    # The line may have moved on since the edit was accepted; an undo returns to this version.
    edit.parent = job.parent_version or edit.parent
    edit.journal = EditUndoRecord(
        before=result.before,
        after=result.after,
        cells=[cell for cell in former if cell is not None],
        measured_otherwise=result.measured_otherwise,
        reports=reports if result.can_undo else [],
        relabelled=result.relabelled,
        removed=result.removed,
    )
    return size


def write_journal_state_to_task_row(task: Task, edited: TaskStateBeforeOrAfterEdit) -> None:
    """Write an edited task's labels, image counts and file digests to its database row."""
    if task.held_out_sha256 != edited.held_out:
        # The features belong to the former images.
        task.features_sha256 = task.features_bytes = task.features_key = None
    if task.train_sha256 != edited.train:
        # Nobody sees them, so that the edit cannot say what of it concerns them.
        task.selection_sha256 = task.n_selection = None
    task.classes = edited.classes
    task.n_train, task.n_held_out = edited.n_train, edited.n_held_out
    task.train_sha256 = edited.train or task.train_sha256
    task.held_out_sha256 = edited.held_out or task.held_out_sha256
    task.traces_sha256 = edited.traces
    task.traces_bytes = edited.bytes.get("traces") if edited.traces is not None else None


def _discard_task_emptied_by_edit(session: Session, task: Task, now: float) -> None:
    """Mark a task that an edit emptied as discarded, and its data as deleted."""
    clear_prediction_digests_and_keys(session, task.model_id, task.number)
    set_task_standing(task, TaskStanding.DISCARDED, now)
    task.data_deleted_at = now
    task.train_deleted_at = task.train_deleted_at or now
    task.held_out_deleted_at = task.held_out_deleted_at or now
    task.content_sha256 = task.content_turn = None


def _update_data_reports_after_edit(
    session: Session, model: Model, result: EditResult
) -> list[TaskReportBeforeEdit]:
    """Update the data reports of all tasks that an edit concerns; return the former reports."""
    changes = EditChangesForDataReports(result.classes, result.removed_paths, result.reports)
    former: list[TaskReportBeforeEdit] = []
    query = select(Task).where(Task.model_id == model.id)
    if not result.removed_paths:
        # Other tasks' reports may refer to removed images alone.
        query = query.where(Task.number.in_(list(result.reports)))
    for task in session.scalars(query):
        edited = build_batch_report_after_edit(task.report, task.number, changes)
        if edited != task.report:
            former.append(
                TaskReportBeforeEdit(task=task.number, report=cast(JsonObject, task.report))
            )
            task.report = edited
    return former


def restore_data_reports_before_edit(
    session: Session, model: Model, reports: list[TaskReportBeforeEdit]
) -> None:
    """Restore the data reports of tasks from an edit's journal, to undo the edit.

    Reports of deleted data stay deleted.
    """
    for former in reports:
        task = session.scalar(
            select(Task).where(Task.model_id == model.id, Task.number == former.task)
        )
        if task is not None and task.data_deleted_at is None:
            task.report = cast(BatchReport, former.report)


def restore_matrix_cells_before_edit(
    session: Session, model: Model, cells: list[MatrixCellBeforeEdit]
) -> None:
    """Restore cells of the accuracy matrix from an edit's journal, to undo the edit."""
    for cell in cells:
        _replace_matrix_cell_counts(session, model, cell, keep_answers=True)


def _lock_unchanged_task_row(
    session: Session, model: Model, before: TaskStateBeforeOrAfterEdit
) -> Task:
    query = select(Task).where(Task.model_id == model.id, Task.number == before.number)
    # Read again under the lock: the session may have the row as it was before.
    task = session.scalars(query.with_for_update().execution_options(populate_existing=True)).one()
    if build_task_state_for_edit_journal(task) != before.model_copy(update={"bytes": {}}):
        raise Invalid(f"Task {task.number} has changed while the edit was made. Send it again.")
    return task


def build_task_state_for_edit_journal(task: Task) -> TaskStateBeforeOrAfterEdit:
    """Return a task's labels, image counts and data file digests, for the journal of an edit."""
    has_train = task.train_deleted_at is None and task.data_deleted_at is None
    has_held_out = task.held_out_deleted_at is None and task.data_deleted_at is None
    return TaskStateBeforeOrAfterEdit(
        number=task.number,
        classes=task.classes,
        n_train=task.n_train or 0,
        n_held_out=task.n_held_out,
        train=task.train_sha256 if has_train else None,
        held_out=task.held_out_sha256 if has_held_out else None,
        traces=task.traces_sha256 if has_held_out else None,
        bytes={},
    )


def _iterate_file_digests_of_edited_task(
    task: TaskStateBeforeOrAfterEdit,
) -> Iterator[tuple[str, str]]:
    for kind in _KINDS:
        digest = getattr(task, kind)
        if digest is not None:
            yield kind, digest


def _retain_task_files_before_edit(
    session: Session,
    edit: Edit,
    task: Task,
    before: TaskStateBeforeOrAfterEdit,
    after: TaskStateBeforeOrAfterEdit,
    until: float,
) -> None:
    """Keep the former data files of an edited task, so that the edit can be undone."""
    for kind, digest in _iterate_file_digests_of_edited_task(before):
        if getattr(after, kind) != digest:
            size = before.bytes.get(kind, 0)
            session.add(
                TaskFileBeforeEdit(
                    edit_id=edit.id,
                    task_id=task.id,
                    kind=kind,
                    sha256=digest,
                    bytes=size,
                    until=until,
                )
            )


def _replace_matrix_cell_counts(
    session: Session, model: Model, cell: MatrixCellBeforeEdit, *, keep_answers: bool
) -> MatrixCellBeforeEdit | None:
    """Store new counts in a cell of the accuracy matrix; return the old ones, or None without such
    a cell.
    """
    row = session.get(VersionTaskResult, (model.id, cell.version, cell.task), with_for_update=True)
    if row is None:
        return None
    former = MatrixCellBeforeEdit(
        version=row.version,
        task=row.task,
        correct=row.correct,
        total=row.total,
        per_class=row.per_class,
    )
    row.correct, row.total, row.per_class = cell.correct, cell.total, cell.per_class
    if not keep_answers:
        # They have the former images and labels.
        row.answers = row.answers_bytes = None
    return former


def _record_class_aliases(
    session: Session, model: Model, edit: Edit, result: EditResult, now: float
) -> None:
    """Store the former names of classes that an edit renamed, merged or dropped."""
    for name, to in result.classes.items():
        # A class that was renamed twice leads to its newest name.
        moved = update(ClassAlias).where(ClassAlias.model_id == model.id, ClassAlias.to == name)
        session.execute(moved.values(to=to))
        session.execute(
            delete(ClassAlias).where(
                ClassAlias.model_id == model.id, ClassAlias.name.in_([name, *([to] if to else [])])
            )
        )
        session.add(
            ClassAlias(model_id=model.id, name=name, to=to, edit=edit.number, created_at=now)
        )
    session.flush()
    in_use = {name for task in result.after for name in task.classes}
    delete_reused_class_aliases(session, model.id, in_use)
